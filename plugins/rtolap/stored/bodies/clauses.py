"""The headers `columns`, `where` and `delete`: names of source columns, and expressions over them.

`columns: a, tmp, b = upper(tmp)` names the columns of the body in order and says how columns of the table are
made of them. Expressions are data, not SQL to be run: only the node types and functions listed here pass,
and no tables, subqueries, parameters, aggregates or settings are among them.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.dialects.doris import Doris
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from rtolap.base.errors import DefinitionError
from rtolap.stored.bodies.engine_sql import COMPARING, NUMERIC, TEXTS, TIMES
from rtolap.stored.bodies.text_growth import check_growth

_CLAUSE_BYTES_MAX = 1 << 16
_NODES: frozenset[type[exp.Expr]] = frozenset(
    (
        *NUMERIC,
        *COMPARING,
        *TEXTS,
        *TIMES,
        exp.Column,
        exp.Identifier,
        exp.Literal,
        exp.Boolean,
        exp.Null,
        exp.Paren,
        exp.Tuple,
        exp.Not,
        exp.And,
        exp.Or,
        exp.Is,
        exp.Case,
        exp.If,
        exp.Coalesce,
        exp.Nullif,
        exp.Cast,
        exp.TryCast,
        exp.DataType,
        exp.DataTypeParam,
        exp.Interval,
        exp.Var,
        exp.Date,
        exp.TsOrDsToDate,
        exp.TsOrDsToTimestamp,
        exp.Year,
        exp.Month,
        exp.Day,
        exp.DayOfMonth,
    )
)
# Words that are written as they stand, without quotes: units of time, and no others.
_WORDS = frozenset(
    ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
)
_SKETCHES = ("hll_hash", "hll_empty", "to_bitmap", "bitmap_hash", "bitmap_empty")


class Expression(NamedTuple):
    """An expression of a header.

    Attributes:
        written: as its author wrote it.
        sketch: the function around it, which makes a sketch.
    """

    tree: exp.Expr
    written: str
    sketch: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(str(column.name) for column in self.tree.find_all(exp.Column))


class ColumnsClause(NamedTuple):
    """The header `columns`.

    Attributes:
        sources: columns of the body, in order.
        computed: expressions of columns of the table, by name.
    """

    sources: tuple[str, ...]
    computed: dict[str, Expression]


def parse_columns(text: str) -> ColumnsClause:
    """Parse the header `columns`. Raises DefinitionError naming the header and the item."""
    _check_length("columns", text)
    sources: list[str] = []
    computed: dict[str, Expression] = {}
    for item in _items(text):
        match item:
            case [name] if _is_name(name):
                sources.append(_name(name))
            case [name, equals, first, *rest] if _is_name(name) and equals.token_type is TokenType.EQ:
                last = rest[-1] if rest else first
                target = _name(name)
                if target in computed:
                    raise DefinitionError("header columns", expected=f"{target} computed once")
                computed[target] = parse_expression("columns", text[first.start : last.end + 1])
            case _:
                shown = text[item[0].start : item[-1].end + 1] if item else ""
                raise DefinitionError(
                    "header columns", expected="name, or name = expression", found=repr(shown)
                )
    if len(set(sources)) != len(sources):
        raise DefinitionError("header columns", expected="every name once", found=", ".join(sources))
    return ColumnsClause(tuple(sources), computed)


def parse_expression(header: str, text: str) -> Expression:
    """Parse an expression. Raises DefinitionError for text that is none, or holds something that is not
    allowed."""
    _check_length(header, text)
    try:
        trees = sqlglot.parse(f"SELECT {text}", dialect="doris")
    except (SqlglotError, RecursionError) as error:
        raise DefinitionError(f"header {header}: not an expression", found=repr(text)) from error
    select = trees[0] if len(trees) == 1 else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or _clauses(select):
        raise DefinitionError(f"header {header}: not one expression", found=repr(text))
    tree: exp.Expr = select.expressions[0]
    sketch = None
    if isinstance(tree, exp.Anonymous) and str(tree.this).lower() in _SKETCHES:
        sketch = str(tree.this).lower()
        wanted = 0 if sketch.endswith("_empty") else 1
        if len(tree.expressions) != wanted:
            raise DefinitionError(
                f"header {header}: {sketch}", expected=f"{wanted} arguments", found=repr(text)
            )
        tree = tree.expressions[0] if wanted else exp.Null()
    for node in tree.walk():
        _check_node(header, text, node)
    check_growth(header, tree)
    return Expression(tree, text.strip(), sketch)


def _check_node(header: str, text: str, node: exp.Expr) -> None:
    if type(node) not in _NODES:
        construct = f"the function {node.this}" if isinstance(node, exp.Anonymous) else node.key.upper()
        raise DefinitionError(f"header {header}: {construct} is not allowed", found=repr(text))
    if isinstance(node, exp.Column) and len(node.parts) != 1:
        raise DefinitionError(f"header {header}: a qualified name", found=repr(node.sql()))
    if isinstance(node, exp.Var) and node.name.upper() not in _WORDS:
        raise DefinitionError(
            f"header {header}: not a unit of time", expected=", ".join(sorted(_WORDS)), found=repr(node.name)
        )
    if isinstance(node, exp.DataTypeParam) and not _is_whole(node.this):
        raise DefinitionError(
            f"header {header}: not a size of a type", expected="a whole number", found=repr(node.name)
        )
    if isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest")):
        raise DefinitionError(f"header {header}: a subquery is not allowed", found=repr(text))


def _is_whole(node: object) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal()


def _clauses(select: exp.Select) -> bool:
    return any(value for name, value in select.args.items() if name != "expressions")


def _items(text: str) -> list[list[sqlglot.Token]]:
    """Return the tokens between the commas that stand in no parentheses."""
    try:
        tokens = Doris().tokenize(text)
    except SqlglotError as error:
        raise DefinitionError("header columns: unreadable", found=repr(text)) from error
    if len(tokens) >= 2 and tokens[0].token_type is TokenType.L_PAREN and _closes_last(tokens):
        tokens = tokens[1:-1]
    items: list[list[sqlglot.Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.COMMA and depth == 0:
            items.append([])
        else:
            items[-1].append(token)
    return items


def _closes_last(tokens: list[sqlglot.Token]) -> bool:
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return place == len(tokens) - 1
    return False


def _is_name(token: sqlglot.Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or str(token.text).replace("_", "a").isalnum()


def _name(token: sqlglot.Token) -> str:
    return str(token.text)


def _check_length(header: str, text: str) -> None:
    if len(text) > _CLAUSE_BYTES_MAX:
        raise DefinitionError(
            f"header {header} is too long", expected=f"at most {_CLAUSE_BYTES_MAX} characters"
        )
