"""Parameters and constants of statements as msgpack holds them, between the service and its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from rtolap.base.errors import Corrupted, QueryError

_INT64 = 1 << 63


def packed_values(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: packed(value) for name, value in values.items()}


def packed(value: object) -> Any:
    """Return a value as msgpack can hold it: itself, or a list of its kind and its parts."""
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else ["int", str(value)]
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, time):
        return ["time", value.isoformat()]
    if isinstance(value, timedelta):
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if isinstance(value, UUID):
        return ["uuid", str(value)]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple):
        return ["list", *map(packed, value)]
    if isinstance(value, dict):
        return ["dict", *([packed(key), packed(each)] for key, each in value.items())]
    raise QueryError("a value of a kind that no statement has", found=type(value).__name__)


def unpacked(value: Any) -> Any:
    """Return the value. Raises Corrupted for bytes that `packed` does not make."""
    if not isinstance(value, list):
        return value
    try:
        kind, *parts = value
        return _UNPACK[kind](parts)
    except (KeyError, ValueError, TypeError, ArithmeticError) as error:
        raise Corrupted("a value of no known kind", found=str(value)[:100]) from error


_UNPACK: dict[str, Callable[[list[Any]], object]] = {
    "int": lambda parts: int(parts[0]),
    "decimal": lambda parts: Decimal(parts[0]),
    "datetime": lambda parts: datetime.fromisoformat(parts[0]),
    "date": lambda parts: date.fromisoformat(parts[0]),
    "time": lambda parts: time.fromisoformat(parts[0]),
    "timedelta": lambda parts: timedelta(*parts),
    "uuid": lambda parts: UUID(parts[0]),
    "list": lambda parts: [unpacked(part) for part in parts],
    "dict": lambda parts: {unpacked(key): unpacked(each) for key, each in parts},
}


def value_size(value: object) -> int:
    """Return bytes of a value that could be large."""
    if isinstance(value, str | bytes | bytearray):
        return len(value) * (4 if isinstance(value, str) else 1)
    if isinstance(value, list | tuple):
        return sum(map(value_size, value))
    if isinstance(value, dict):
        return sum(value_size(key) + value_size(each) for key, each in value.items())
    return 16
