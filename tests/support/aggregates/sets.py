"""Sets of values as bytes, written one value at a time by Python: what the product's columns are held to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from rtolap.aggregates.accumulator import SetForm

_EPOCH = datetime(1970, 1, 1)
_CODES = {4: 1, 8: 2, 16: 3}
_TEXT_BYTES_MAX = 64 << 20


def set_bytes(values: Iterable[Any], form: SetForm, scale: int = 0) -> bytes | None:
    """Return the set of the values that are not None, or the mark of too many; None without any."""
    codes = sorted({code_of(value, form.width, scale) for value in values if value is not None})
    if not codes:
        return None
    joined = b"".join(codes)
    if len(codes) > 1 << form.lg_max or (not form.width and len(joined) > _TEXT_BYTES_MAX):
        return bytes((0xFE, form.lg_max)) + form.column.encode()
    return bytes((4 * form.lg_max + _CODES.get(form.width, 0),)) + joined


def united_bytes(sets: Iterable[bytes], form: SetForm) -> bytes:
    """Return the union of sets of this form, of which there is at least one."""
    known = list(sets)
    if form.mark in known:
        return form.mark
    codes = sorted({code for data in known for code in _codes_of(data[1:], form.width)})
    if len(codes) > 1 << form.lg_max:
        return form.mark
    return known[0][:1] + b"".join(codes)


def _codes_of(data: bytes, width: int) -> list[bytes]:
    if not width:
        return [text + b"\xff" for text in data.split(b"\xff")[:-1]]
    return [data[start : start + width] for start in range(0, len(data), width)]


def numbers_of(data: bytes | None) -> frozenset[int] | None:
    """Return the numbers of a set of bigints; None without any. Raises AssertionError for a mark."""
    if data is None:
        return None
    assert data[0] & 3 == _CODES[8], f"no set of bigints: {data!r}"
    codes = [data[start : start + 8] for start in range(1, len(data), 8)]
    return frozenset(int.from_bytes(code, "big") - (1 << 63) for code in codes)


def code_of(value: Any, width: int, scale: int) -> bytes:
    if isinstance(value, str):
        return value.encode() + b"\xff"
    match value:
        case datetime():
            number = (value - _EPOCH) // timedelta(microseconds=1)
        case date():
            number = (value - _EPOCH.date()).days
        case Decimal():
            number = int(value.scaleb(scale, Context(prec=60)))
        case _:
            number = int(value)
    return (number + (1 << (8 * width - 1))).to_bytes(width, "big")
