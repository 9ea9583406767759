"""A record, parsed strictly, to say what is wrong with it. Slow: only for refused or suspicious ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Literal, NamedTuple

from rtolap.column_types import DECIMAL_PRECISION_MAX, ColumnType
from rtolap.events.event_time import EventTimeParser
from rtolap.model.value_paths import index_of, path_text

Reason = Literal[
    "tombstone",
    "empty",
    "too_large",
    "invalid_utf8",
    "malformed_json",
    "malformed_csv",
    "malformed_avro",
    "malformed_protobuf",
    "bad_framing",
    "unknown_schema",
    "unknown_operation",
    "not_an_object",
    "wrong_type",
    "nested_value",
    "missing_value",
    "unknown_column",
    "invalid_time",
    "missing_time",
    "time_in_future",
    "out_of_range",
    "malformed_sketch",
    "unfit_sketch",
]

_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_INT_RANGE: dict[str, int] = {"int": 1 << 31, "bigint": 1 << 63}
_EXACT_DOUBLE = 10**15
_FOUND_CHARS_MAX = 80
_EXPONENT_DIGITS_MAX = 36  # the columnar reader scales such numbers in 128 bits and minds no overflow


class _Misread(Decimal):
    """A number that the columnar reader silently takes for another: long, and with an exponent."""


def _written(text: str) -> Decimal:
    mantissa, exponent, _ = text.lower().partition("e")
    is_misread = exponent and sum(map(str.isdigit, mantissa)) > _EXPONENT_DIGITS_MAX
    return _Misread(text) if is_misread else Decimal(text)


class Problem(NamedTuple):
    reason: Reason
    detail: str


class Leaf(NamedTuple):
    """A column as it is read.

    Attributes:
        type: string for dates, timestamps and written times.
        rounded: the decimal to which the column is rounded; None for no rounding. The column is read with one
            more digit behind the point, which decides: digits that the reader cuts off cannot change a half.
        moment: date, timestamp or binary, where the column is one and is written as text. A format with
            points in time, or bytes, of its own gives it as that type.
        times: how points in time are written, of columns that hold them.
    """

    name: str
    path: tuple[str, ...]
    type: ColumnType
    is_time: bool
    rounded: ColumnType | None = None
    moment: ColumnType | None = None
    times: EventTimeParser | None = None


class Classifier:
    """Names what is wrong with a record. `known` are the names allowed at the top level, None for any."""

    def __init__(self, leaves: Sequence[Leaf], known: frozenset[str] | None) -> None:
        self._leaves = tuple(leaves)
        self._known = known

    def problem(self, record: bytes) -> Problem | None:
        """Return the first problem of a strict reading: bytes, JSON, shape, columns; None when all is
        well."""
        if not record.strip():
            return Problem("empty", f"{len(record)} bytes without a value")
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as error:
            return Problem("invalid_utf8", f"byte {error.start}: {error.reason}")
        try:
            value = json.loads(text, parse_float=_written, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            return Problem("malformed_json", f"character {error.pos}: {error.msg}")
        except (ValueError, RecursionError, InvalidOperation) as error:
            return Problem("malformed_json", str(error)[:200])
        if not isinstance(value, dict):
            return Problem("not_an_object", f"expected a JSON object, found {_show(value)}")
        for leaf in self._leaves:
            problem = _value_problem(leaf, value, 0)
            if problem is not None:
                return problem
        return self._unknown(value)

    def _unknown(self, value: dict[str, Any]) -> Problem | None:
        if self._known is not None:
            for name in value:
                if name not in self._known:
                    return Problem("unknown_column", f"the table has no column for {name!r}")
        return None


def _value_problem(leaf: Leaf, value: Any, begin: int) -> Problem | None:
    """Return the problem of what stands at the steps of the path from `begin` on. All items of an array are
    looked at, because all are read."""
    for depth, part in enumerate(leaf.path[begin:], begin):
        if value is None:
            return None
        if index_of(part) is not None:
            if not isinstance(value, list):
                return _wrong(leaf, f"an array at {path_text(leaf.path[:depth])}", value)
            problems = (_value_problem(leaf, item, depth + 1) for item in value)
            return next((problem for problem in problems if problem is not None), None)
        if not isinstance(value, dict):
            inside = path_text(leaf.path[:depth])
            return _wrong(leaf, f"an object at {inside}", value)
        value = value.get(part)
    if value is None or (leaf.rounded is None and _accepts(leaf.type, value)):
        return None
    if leaf.rounded is not None and _rounds_to(leaf.rounded, value):
        return None
    expected = leaf.rounded or leaf.type
    if isinstance(value, (dict, list)):
        return Problem("nested_value", f"column {leaf.name}: expected {expected}, found {_show(value)}")
    return _wrong(leaf, str(expected), value)


def _wrong(leaf: Leaf, expected: str, value: Any) -> Problem:
    detail = f"column {leaf.name}: expected {expected}, found {_show(value)}"
    return Problem("invalid_time" if leaf.is_time else "wrong_type", detail)


def _accepts(kind: ColumnType, value: Any) -> bool:
    """Return True if the value fits without loss. Numbers may be written as strings."""
    if kind.kind == "string":
        return isinstance(value, str)
    if kind.kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return False
    try:
        number: Decimal | int = _written(value) if isinstance(value, str) else value
        if kind.kind == "double":
            return math.isfinite(float(number))
        if not Decimal(number).is_finite():
            return False
        if kind.kind == "decimal":
            return not isinstance(number, _Misread) and _fits_decimal(Decimal(number), kind)
        limit = _INT_RANGE.get(kind.kind, 0)
        exact = isinstance(value, int) or (isinstance(value, str) and _WHOLE.fullmatch(value) is not None)
        if not exact and Decimal(number).copy_abs() >= _EXACT_DOUBLE:
            return False  # the columnar reader goes through a double here
        whole = int(number)
        return number == whole and -limit <= whole < limit
    except (InvalidOperation, OverflowError, ValueError):
        return False


def number_in(leaf: Leaf, text: str) -> int | float | Decimal | None:
    """Return the number that a text holds, as the column is read; None where there is none that fits it.

    The rules are those for a string in JSON.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    if leaf.rounded is not None:
        if not _rounds_to(leaf.rounded, text):
            return None
        with localcontext(prec=2 * DECIMAL_PRECISION_MAX):
            return Decimal(text).quantize(Decimal(1).scaleb(-leaf.type.scale), ROUND_DOWN)
    if not _accepts(leaf.type, text):
        return None
    if leaf.type.kind == "double":
        return float(text)
    number = Decimal(text)
    return number if leaf.type.kind == "decimal" else int(number)


def _rounds_to(kind: ColumnType, value: Any) -> bool:
    """Return True if the value fits the decimal once it is rounded, halves away from zero."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return False
    try:
        number = _written(value) if isinstance(value, str) else Decimal(value)
        if isinstance(value, _Misread) or isinstance(number, _Misread):
            return False
        if not number.is_finite() or (number and number.adjusted() >= kind.precision - kind.scale):
            return False
        with localcontext(prec=DECIMAL_PRECISION_MAX + 2):
            nearest = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    except (InvalidOperation, ValueError):
        return False
    return not nearest or nearest.adjusted() < kind.precision - kind.scale


def _fits_decimal(number: Decimal, kind: ColumnType) -> bool:
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "finite"
    stripped = len(digits)
    while stripped > 1 and exponent < 0 and digits[stripped - 1] == 0:
        stripped, exponent = stripped - 1, exponent + 1
    return number == 0 or (-exponent <= kind.scale and number.adjusted() < kind.precision - kind.scale)


def _show(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)[:_FOUND_CHARS_MAX]
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _FOUND_CHARS_MAX else text[:_FOUND_CHARS_MAX] + "…"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
