"""Bounds of the text length of an expression, from its tree: the engine does not bound text.

A value is at most `factors[column] · length of that column`, summed over columns, and `constant` bytes more.
Texts of one row are read once, so the largest factor bounds what comes of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import add
from typing import NamedTuple

from sqlglot import exp

from rtolap.base.errors import DefinitionError

FACTOR_MAX = 8
CONSTANT_BYTES_MAX = 1 << 14
_SHOWN_BYTES = 40  # of a number or an instant
_SHOWN_PER_LETTER = 16  # of a format: %c and its like
_LIKE_FIRST = (
    exp.Substring,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Left,
    exp.Right,
    exp.Reverse,
    exp.SplitPart,
    exp.Paren,
    exp.Cast,
    exp.TryCast,
)
_GROWING = (exp.Replace, exp.RegexpReplace, exp.Concat, exp.ConcatWs, exp.TimeToStr)
_ONE_OF = (exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)


class Growth(NamedTuple):
    factors: Mapping[str, float]
    constant: float

    def times(self, factor: float) -> Growth:
        grown = {name: own * factor for name, own in self.factors.items()}
        return Growth(grown, self.constant * factor)


def check_growth(header: str, tree: exp.Expr) -> None:
    """Raise DefinitionError where some part of the expression may become far longer than its input."""
    for node in tree.find_all(*_GROWING):
        try:
            growth = _growth(header, node)
        except RecursionError as error:
            raise DefinitionError(f"header {header}: nested too deeply") from error
        factor = max(growth.factors.values(), default=0)
        if factor > FACTOR_MAX or growth.constant > CONSTANT_BYTES_MAX:
            raise DefinitionError(
                f"header {header}: text would become too long",
                expected=f"at most {FACTOR_MAX} times a column, and {CONSTANT_BYTES_MAX} bytes more",
                found=f"{factor:g} times, and {growth.constant:g} bytes, of {node.sql()[:80]}",
            )


def _growth(header: str, node: exp.Expr) -> Growth:
    match node:
        case exp.Column():
            return Growth({str(node.name): 1}, _SHOWN_BYTES)
        case exp.Literal():
            return Growth({}, len(str(node.this).encode()))
        case exp.Replace():
            sought = _constant(header, node.expression)
            put = "" if node.args.get("replacement") is None else _constant(header, node.args["replacement"])
            return _growth(header, node.this).times(max(1.0, _bytes(put) / max(1, _bytes(sought))))
        case exp.RegexpReplace():
            put = "" if node.args.get("replacement") is None else _constant(header, node.args["replacement"])
            return _growth(header, node.this).times(1 + _bytes(put))
        case exp.TimeToStr():
            return _growth(header, node.args["format"]).times(_SHOWN_PER_LETTER)
        case _ if isinstance(node, _LIKE_FIRST):
            return _combined([_growth(header, node.this), Growth({}, _SHOWN_BYTES)], add)
        case _ if isinstance(node, _ONE_OF):
            return _combined([_growth(header, child) for child in node.iter_expressions()], max)
        case exp.Concat() | exp.ConcatWs():
            return _combined([_growth(header, child) for child in node.iter_expressions()], add)
        case _:
            return Growth({}, _SHOWN_BYTES)


def _constant(header: str, node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal):
        raise DefinitionError(
            f"header {header}: replaced and put text have to be constants", found=repr(node.sql()[:80])
        )
    return str(node.this)


def _bytes(text: str) -> int:
    return len(text.encode())


def _combined(parts: Iterable[Growth], combine: Callable[[float, float], float]) -> Growth:
    """Return the sum of the parts by `add`, the largest by `max`."""
    factors: dict[str, float] = {}
    constant = 0.0
    for part in parts:
        for name, factor in part.factors.items():
            factors[name] = combine(factors.get(name, 0), factor)
        constant = combine(constant, part.constant)
    return Growth(factors, constant)
