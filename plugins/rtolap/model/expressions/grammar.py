"""The grammar of expressions: SQL's operators, CASE, COALESCE and a few functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any

import pyparsing as pp

from rtolap.base.errors import DefinitionError
from rtolap.model.expressions.nodes import (
    Arithmetic,
    Both,
    Branch,
    Call,
    Case,
    Coalesce,
    Comparison,
    Either,
    Expression,
    Inverse,
    IsNull,
    Name,
    Negative,
    Value,
    count_nodes,
)

TEXT_CHARS_MAX = 4_000
DEPTH_MAX = 15  # of parentheses and CASEs in each other: each is some thirty calls deep for the parser
NODES_MAX = 300  # of a tree, which may be a chain
_NESTS = re.compile(r"'[^']*'|\(|\)|\bcase\b|\bend\b", re.IGNORECASE)
CASE, WHEN, THEN, ELSE, END = map(pp.CaselessKeyword, ("CASE", "WHEN", "THEN", "ELSE", "END"))
AND, OR, NOT, IN, BETWEEN = map(pp.CaselessKeyword, ("AND", "OR", "NOT", "IN", "BETWEEN"))
IS, NULL, TRUE, FALSE = map(pp.CaselessKeyword, ("IS", "NULL", "TRUE", "FALSE"))
COALESCE, ABS, LOWER, UPPER = map(pp.CaselessKeyword, ("COALESCE", "ABS", "LOWER", "UPPER"))
_NO_COLUMNS = pp.MatchFirst([CASE, WHEN, THEN, ELSE, END, AND, OR, NOT, IN, BETWEEN, IS, NULL, TRUE, FALSE])


def _made(element: pp.ParserElement, build: Callable[[list[Any]], object]) -> pp.ParserElement:
    """Return the element with one result, which is built out of the results of its parts."""
    return element.set_parse_action(lambda found: build(list(found)))


def _number(text: str) -> Value:
    return Value(float(text) if "e" in text.lower() else Decimal(text))


def _chained(parts: list[Any]) -> Expression:
    """Return the tree of `a op b op c`, from the left."""
    tree: Expression = parts[0]
    for operator, operand in zip(parts[1::2], parts[2::2], strict=True):
        tree = Arithmetic(operator, tree, operand)
    return tree


def _predicate(parts: list[Any]) -> Expression:
    operand, *suffix = parts
    found: Expression = suffix[0](operand) if suffix else operand
    return found


def _comparison(parts: list[Any]) -> Any:
    operator, right = parts
    return lambda left: Comparison("<>" if operator == "!=" else operator, left, right)


def _range(parts: list[Any]) -> Any:
    low, high = parts
    return lambda operand: Both(Comparison(">=", operand, low), Comparison("<=", operand, high))


def _members(parts: list[Any]) -> Any:
    def among(operand: Expression) -> Expression:
        equal: list[Expression] = [Comparison("=", operand, member) for member in parts]
        return reduce(Either, equal)

    return among


def _negated(parts: list[Any]) -> Any:
    return lambda operand: Inverse(parts[0](operand))


def _called(parts: list[Any]) -> Call:
    function, operand = parts
    return Call(function.lower(), operand)


def _grammar() -> pp.ParserElement:
    """Return the grammar; each element's result is one node, or a function from an operand to a node."""
    opened, closed, minus = (pp.Suppress(sign) for sign in "()-")
    case, when, then, els, end = map(pp.Suppress, (CASE, WHEN, THEN, ELSE, END))
    and_, or_, not_, in_, between, is_, null = map(pp.Suppress, (AND, OR, NOT, IN, BETWEEN, IS, NULL))
    whole = pp.Forward()
    number = pp.Regex(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?").set_name("a number")
    text = pp.QuotedString("'", esc_quote="''", convert_whitespace_escapes=False).set_name("a text")
    column = ~_NO_COLUMNS + pp.Regex(r"[A-Za-z_][A-Za-z0-9_]*|`[^`]+`").set_name("a column")
    listed = opened + pp.DelimitedList(whole) + closed
    branch = _made(when + whole + then + whole, lambda found: Branch(*found))
    otherwise = pp.Optional(els + whole, default=Value(None))
    positive = (
        _made(number, lambda found: _number(found[0]))
        | _made(text, lambda found: Value(found[0]))
        | _made(TRUE.copy(), lambda _: Value(value=True))
        | _made(FALSE.copy(), lambda _: Value(value=False))
        | _made(NULL.copy(), lambda _: Value(None))
        | _made(case + branch[1, ...] + otherwise + end, lambda found: Case(tuple(found[:-1]), found[-1]))
        | _made(pp.Suppress(COALESCE) + listed, lambda found: Coalesce(tuple(found)))
        | _made((ABS | LOWER | UPPER) + opened + whole + closed, _called)
        | (opened + whole + closed)
        | _made(column, lambda found: Name(found[0].strip("`").lower()))
    )
    factor = _made(minus + positive, lambda found: Negative(found[0])) | positive
    product = _made(factor + (pp.one_of("* /") + factor)[...], _chained)
    total = _made(product + (pp.one_of("+ -") + product)[...], _chained)
    ranged = _made(between + total + and_ + total, _range)
    among = _made(in_ + listed, _members)
    suffix = (
        _made(pp.one_of("<= >= <> != = < >") + total, _comparison)
        | ranged
        | among
        | _made(not_ + (ranged | among), _negated)
        | _made(is_ + not_ + null, lambda _: lambda operand: Inverse(IsNull(operand)))
        | _made(is_ + null, lambda _: IsNull)
    )
    predicate = _made(total + pp.Optional(suffix), _predicate)
    inverse = _made(not_ + predicate, lambda found: Inverse(found[0])) | predicate
    both = _made(inverse + (and_ + inverse)[...], lambda found: reduce(Both, found))
    whole <<= _made(both + (or_ + both)[...], lambda found: reduce(Either, found))
    return whole


_EXPRESSION = _grammar().set_name("an expression")


@lru_cache(maxsize=512)  # batches and statements ask for it again
def parse_expression(text: str) -> Expression:
    """Return the tree. Raises DefinitionError that says where the text is none."""
    if len(text) > TEXT_CHARS_MAX:
        raise DefinitionError(
            "an expression is too long", expected=f"at most {TEXT_CHARS_MAX} characters", found=str(len(text))
        )
    if (depth := _depth(text)) > DEPTH_MAX:
        raise DefinitionError(
            "an expression is nested too deep",
            expected=f"at most {DEPTH_MAX} parentheses and CASEs in each other",
            found=str(depth),
        )
    try:
        (tree,) = _EXPRESSION.parse_string(text, parse_all=True)
    except pp.ParseException as error:
        raise DefinitionError(
            "not an expression",
            expected="columns, numbers, 'texts', + - * /, comparisons, AND, OR, NOT, IS NULL, IN, BETWEEN, "
            "CASE, COALESCE, ABS, LOWER or UPPER",
            found=f"{text[error.loc :][:40]!r} at character {error.loc + 1}",
        ) from error
    found: Expression = tree
    if (size := count_nodes(found)) > NODES_MAX:
        raise DefinitionError(
            "an expression is too large",
            expected=f"at most {NODES_MAX} values and operations",
            found=str(size),
        )
    return found


def _depth(text: str) -> int:
    """Return how many parentheses and CASEs are open at once."""
    depth = deepest = 0
    for mark in _NESTS.findall(text):
        depth += {"(": 1, "case": 1, ")": -1, "end": -1}.get(mark.lower(), 0)
        deepest = max(deepest, depth)
    return deepest
