"""The SQL that users write: MySQL's grammar, with `||` as concatenation.

MySQL's rules for quotes are kept (backticks quote names, double quotes make strings unless the session says
otherwise) because its clients write them; `||` as a logical OR would silently turn a concatenation into a
boolean, so it concatenates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.mysql import MySQL
from sqlglot.tokenizer_core import TokenType

from rtolap.aggregates.approx_top_k import TOP_DEFAULT
from rtolap.base.errors import SqlSyntaxError
from rtolap.query.approval.own_functions import OWN_NAMES
from rtolap.query.approval.value_lists import ValueList

MACRO_PREFIX = "MYSQL_"
# Functions that are read as they are written, because the parser's own reading loses some of it.
_OWN_FUNCTIONS = frozenset(("ELT", "JSON_EXTRACT", "REGEXP_SUBSTR", "STR_TO_DATE"))


def _json_value(this: exp.Expr, path: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="JSON_EXTRACT", expressions=[this, path])


def _approx_quantile(arguments: list[exp.Expr]) -> exp.Expr:
    """Read APPROX_PERCENTILE(x, q), and without q the median. How exact it is, the declaration says."""
    if len(arguments) > 2:
        raise SqlSyntaxError("bad SQL: APPROX_PERCENTILE takes a column and a number from 0 to 1")
    quantile = arguments[1] if len(arguments) > 1 else exp.Literal.number("0.5")
    return exp.ApproxQuantile(this=arguments[0] if arguments else None, quantile=quantile)


def _approx_top_k(arguments: list[exp.Expr]) -> exp.Expr:
    """Read APPROX_TOP_K(x, n). How exact it is, the declaration says."""
    if len(arguments) > 2:
        raise SqlSyntaxError("bad SQL: APPROX_TOP_K takes a column and how many values to return")
    count = arguments[1] if len(arguments) > 1 else exp.Literal.number(TOP_DEFAULT)
    return exp.ApproxTopK(this=arguments[0] if arguments else None, expression=count)


def _one_argument(name: str, node: type[exp.Expr]) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Return what reads a call of a function that the parser does not know."""

    def read(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 1:
            raise SqlSyntaxError(f"bad SQL: {name} takes one column")
        return node(this=arguments[0])

    return read


WRITTEN = "written"  # of a projection's meta: its text, as its author wrote it
_PLACEHOLDER = re.compile(r":p\d+\b")  # as `parser` names each `?`
LABEL_CHARACTERS_MAX = 256


class RtolapSql(MySQL):
    """The one grammar; texts in which double quotes mean names go through `quoted_with_backticks` first."""

    class Tokenizer(MySQL.Tokenizer):
        # without REAL_AS_FLOAT, which is refused
        KEYWORDS: ClassVar = {**MySQL.Tokenizer.KEYWORDS, "REAL": TokenType.DOUBLE}

    class Parser(MySQL.Parser):  # type: ignore[misc,valid-type]
        DISJUNCTION: ClassVar = {
            token: kind for token, kind in MySQL.Parser.DISJUNCTION.items() if token is not TokenType.DPIPE
        }
        FUNCTIONS: ClassVar = {
            **{name: build for name, build in MySQL.Parser.FUNCTIONS.items() if name not in _OWN_FUNCTIONS},
            "APPROX_PERCENTILE": _approx_quantile,
            "APPROX_QUANTILE": _approx_quantile,
            "APPROX_TOP_K": _approx_top_k,
            **{name: _one_argument(name, node) for name, node in OWN_NAMES.items()},
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in MySQL.Parser.FUNCTION_PARSERS.items() if name not in _OWN_FUNCTIONS
        }
        COLUMN_OPERATORS: ClassVar = {
            **MySQL.Parser.COLUMN_OPERATORS,
            TokenType.ARROW: lambda self, this, path: _json_value(this, path),
            TokenType.DARROW: lambda self, this, path: exp.Anonymous(
                this="JSON_UNQUOTE", expressions=[_json_value(this, path)]
            ),
        }

        def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
            """Note the text of each projection: it is what clients see as its name."""
            return self._parse_csv(self._parse_written), None

        def _parse_written(self) -> exp.Expr | None:
            start = self._curr
            projection: exp.Expr | None = self._parse_expression()
            if projection is not None and start and self._prev:
                projection.meta[WRITTEN] = self._find_sql(start, self._prev)
            return projection

        TERM: ClassVar = {**MySQL.Parser.TERM, TokenType.DPIPE: exp.DPipe}
        # {d '…'}, {t '…'} and {ts '…'}, which ODBC's and JDBC's users write
        ODBC_DATETIME_LITERALS: ClassVar = {"d": exp.Date, "t": exp.Time, "ts": exp.Timestamp}
        OPERATION_MODIFIERS: ClassVar = {*MySQL.Parser.OPERATION_MODIFIERS, "SQL_CACHE"}

    class Generator(MySQL.Generator):  # type: ignore[misc,valid-type]
        TRANSFORMS: ClassVar = {
            **MySQL.Generator.TRANSFORMS,
            ValueList: lambda self, node: node.members.sql(),
        }


class _EngineSql(DuckDB):
    """The words of the embedded engine."""

    class Generator(DuckDB.Generator):  # type: ignore[misc,valid-type]
        TRANSFORMS: ClassVar = {
            **DuckDB.Generator.TRANSFORMS,
            ValueList: lambda self, node: node.members.sql(),
        }


# Quotes and comments under ANSI_QUOTES. The work has no step for each word of a text.
_ANSI_PART = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+'|`(?:[^`]|``)*+`|"(?P<name>(?:[^"]|"")*+)"|--[^\n]*+|\#[^\n]*+"""
    r"""|/\*.*?\*/|(?P<open>['"`]|/\*)""",
    re.DOTALL,
)


def quoted_with_backticks(sql: str) -> str:
    """Return `sql` with names in backticks where double quotes make names, as under MySQL's ANSI_QUOTES.

    Texts that differ in meaning differ as texts too, so no cache that is keyed by text mixes the modes.
    Raises QueryError for a quote or a comment that is not closed.
    """
    if '"' not in sql:
        return sql

    def rewritten(part: re.Match[str]) -> str:
        if part["name"] is not None:
            return part["name"].replace('""', '"').replace("`", "``").join("``")
        if part["open"] is not None:
            raise SqlSyntaxError("bad SQL: a quote or a comment is not closed")
        return part[0]

    return _ANSI_PART.sub(rewritten, sql)


def quoted_for_ansi(sql: str) -> str:
    """Return a text without that mode as it is written under ANSI_QUOTES; `quoted_with_backticks` undoes
    it.
    """
    pieces, at = [], 0
    for token in RtolapSql().tokenize(sql):
        quote = sql[token.start]
        if token.token_type is TokenType.IDENTIFIER and quote == "`":
            written = token.text.replace('"', '""').join('""')
        elif token.token_type is TokenType.STRING and quote == '"':
            written = token.text.replace("\\", "\\\\").replace("'", "''").join("''")
        else:
            continue
        pieces += [sql[at : token.start], written]
        at = token.end + 1
    return "".join(pieces) + sql[at:]


def engine_sql(expression: exp.Expr, *, copy: bool = True) -> str:
    """Return the same tree in the words of the embedded engine, without the comments of its author.

    Args:
        copy: False where nobody needs the tree any more: writing it may change it.
    """
    return str(expression.sql(dialect=_EngineSql, copy=copy, comments=False))


def label_of(projection: exp.Expr) -> str:
    """Return the name of a projection that has none, as MySQL gives it: its text, without the quotes around
    it.
    """
    if isinstance(projection, exp.Literal) and projection.is_string and projection.this:
        return str(projection.this)[:LABEL_CHARACTERS_MAX]
    if isinstance(projection, exp.Null):
        return "NULL"
    written = projection.meta.get(WRITTEN)
    text = user_sql(projection) if written is None else _PLACEHOLDER.sub("?", written)
    return text[:LABEL_CHARACTERS_MAX]


def user_sql(expression: exp.Expr) -> str:
    """Return the tree as its author would have written it, for messages and column names."""
    return str(expression.sql(dialect=RtolapSql))


def rewritten_sql(expression: exp.Expr) -> str:
    """Return a tree that rules have rewritten in part, for messages: macros under the names of MySQL's
    functions.
    """
    return user_sql(expression).replace(MACRO_PREFIX, "")
