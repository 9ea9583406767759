"""SQL text → one SELECT tree, or a clear refusal."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import TokenType

from rtolap.base.errors import QueryError, SqlSyntaxError, UnsupportedSql
from rtolap.query.approval import bounds, nodes
from rtolap.query.approval.value_lists import ShortText, put_in
from rtolap.query.sql.dialect import WRITTEN, RtolapSql
from rtolap.query.sql.statement import Explain, positional_names

_EXPLAIN = re.compile(r"\s*+(?:explain|desc|describe)\s++(analyze\s++)?(?=select\b|with\b|\()", re.IGNORECASE)
# What sqlglot fails with, besides its own errors, where a function's arguments are not those that it expects.
PARSERS_OWN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_CHARSETS = ("_binary", "_utf8mb4", "_utf8mb3", "_utf8", "_ascii")
_MARKUP = re.compile(r"\x1b\[\d+m")


@dataclass(frozen=True)
class StatementTree:
    """A parsed query.

    Attributes:
        parameters: names of the parameters: `p1`, `p2`, … in the order of their `?`, or the names in `:name`.
    """

    tree: exp.Expr
    explain: Explain | None
    parameters: tuple[str, ...]

    @cached_property
    def functions(self) -> tuple[exp.Expr, ...]:
        """Its functions and `@@variables`: a look through the tree takes as long as a small statement."""
        return tuple(self.tree.find_all(exp.SessionParameter, exp.Func))


def parse(sql: str, database: str | None = None) -> StatementTree:
    """Parse the text of a query.

    Args:
        database: database of the tables that the text names without one; None where only cubes and lookups
            are.

    Raises QueryError for bad SQL, several statements, or anything but a query.
    """
    short = bounds.check_text(sql)
    if short.lists:
        with suppress(SqlSyntaxError):  # whose place in the text would be another one
            read = _parse(short, database)
            if read is not None:
                return read
        bounds.check_parts(sql)
    read = _parse(ShortText(sql, {}), database)
    assert read is not None, "a text without lists is read or refused"
    return read


def _parse(short: ShortText, database: str | None) -> StatementTree | None:
    """Parse a text. Return None if its lists are not read as they were taken for."""
    sql = short.text
    explained = _EXPLAIN.match(sql)
    explain: Explain | None = None if explained is None else "analyze" if explained[1] else "plan"
    body = sql[explained.end() :] if explained else sql
    try:
        trees, positional = _trees(body)
    except SqlglotError as error:
        raise SqlSyntaxError(f"bad SQL: {_MARKUP.sub('', str(error).splitlines()[0])}") from error
    except RecursionError as error:
        raise too_deep() from error
    except PARSERS_OWN as error:
        raise SqlSyntaxError("bad SQL: a function has too few arguments, or wrong ones") from error
    if len(trees) != 1:
        raise SqlSyntaxError("bad SQL", expected="one statement", found=f"{len(trees)} statements")
    tree = trees[0]
    if isinstance(tree, exp.Condition | exp.Alias):  # some words that begin no statement
        raise SqlSyntaxError(f"bad SQL: {sql.strip()[:100]!r} is no statement")
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        raise UnsupportedSql(
            "unsupported statement", expected="SELECT, WITH, UNION or EXPLAIN SELECT", found=tree.key.upper()
        )
    if not put_in(tree, short.lists):
        return None
    if short.lists:
        _write_lists(tree, short)
    kinds = kinds_in(tree)
    _drop_hints(tree)
    if exp.Introducer in kinds:
        _drop_introducers(tree)
    nodes.approve(tree)
    _drop_dual(tree)
    if database is not None:
        _complete(tree, database)
    if kinds.isdisjoint((exp.Parameter, exp.Placeholder)):
        return StatementTree(tree, explain, positional)
    return StatementTree(tree, explain, _parameters(tree, positional))


def kinds_in(tree: exp.Expr) -> set[type[exp.Expr]]:
    """Return the kinds of nodes in a tree. Most rules are about kinds that most statements have not."""
    return {type(node) for node in tree.walk()}


def _write_lists(tree: exp.Expr, short: ShortText) -> None:
    """Name projections as they were written, with the values of their lists."""
    for node in tree.walk():
        written = node.meta.get(WRITTEN) if node.meta else None
        if written is not None:
            node.meta[WRITTEN] = short.written(written)


def too_deep() -> QueryError:
    return SqlSyntaxError("bad SQL: the statement is too deeply nested", action="nest less, or write IN (…)")


def _drop_hints(tree: exp.Expr) -> None:
    """Drop hints, which tell MySQL's server how to work and change no answer."""
    for node in tree.find_all(exp.Select, exp.Table):
        node.set("hint", None)
        node.set("hints", None)


def _drop_introducers(tree: exp.Expr) -> None:
    """Drop introducers. `_utf8mb4'…'` is the text itself, and so are bytes that are a text: clients send
    texts as bytes too."""
    for node in list(tree.find_all(exp.Introducer)):
        charset = str(node.this if isinstance(node.this, str) else node.this.name).lower()
        if charset not in _CHARSETS or not node.expression.is_string:
            raise UnsupportedSql(
                f"unsupported SQL: the introducer {charset}", expected=f"one of {', '.join(_CHARSETS)}"
            )
        text = exp.Literal.string(str(node.expression.this))
        text.meta.update(node.meta)
        node.replace(text)


def _drop_dual(tree: exp.Expr) -> None:
    """Drop FROM DUAL, which is how MySQL writes that there is no FROM."""
    for select in tree.find_all(exp.Select):
        source = select.args.get("from_")
        table = None if source is None or select.args.get("joins") else source.this
        if not isinstance(table, exp.Table) or table.db or not isinstance(table.this, exp.Identifier):
            continue
        if table.name.upper() == "DUAL" and not table.this.quoted:
            select.set("from_", None)


def _complete(tree: exp.Expr, database: str) -> None:
    for scope in traverse_scope(tree):
        for node in scope.tables:
            if not node.db and not isinstance(node.this, exp.Func) and node.name not in scope.cte_sources:
                if not node.alias:
                    node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
                node.set("db", exp.to_identifier(database, quoted=True))


def _trees(sql: str) -> tuple[list[exp.Expr], tuple[str, ...]]:
    """Return the statements of a text, and the names of its question marks.

    `?` → `:p1`, `:p2`, … by place in the text, so that moving one in the tree shifts no other.
    """
    dialect = RtolapSql()
    tokens = dialect.tokenize(sql)
    bounds.check_tokens(tokens)
    marks = [token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER]
    if marks:
        sql = _with_names(sql, marks)
        tokens = dialect.tokenize(sql)
    trees = [tree for tree in dialect.parser().parse(tokens, sql) if tree is not None]
    return trees, positional_names(len(marks))


def _with_names(sql: str, marks: list[int]) -> str:
    pieces, at = [], 0
    for count, start in enumerate(marks, start=1):
        pieces += [sql[at:start], f":p{count}"]
        at = start + 1
    return "".join(pieces) + sql[at:]


def _parameters(tree: exp.Expr, positional: tuple[str, ...]) -> tuple[str, ...]:
    """Turn placeholders into the engine's `$name`; their names, positional ones in order.

    User variables become variables of the session called `@name`, which puts their values in their place.
    """
    for user in list(tree.find_all(exp.Parameter)):
        variable = exp.SessionParameter(this=exp.var(f"@{str(user.name).lower()}"))
        variable.meta.update(user.meta)
        user.replace(variable)
    names = dict.fromkeys(positional)
    for node in list(tree.find_all(exp.Placeholder)):
        name = str(node.this)
        if positional and name not in names:
            raise QueryError("mixed parameters", expected="either ? or :name", found=f":{name}")
        names.setdefault(name)
        parameter = exp.Parameter(this=exp.var(name))
        parameter.meta.update(node.meta)
        node.replace(parameter)
    return tuple(names)
