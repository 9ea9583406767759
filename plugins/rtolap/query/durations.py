"""Durations of the engine as MySQL's TIME: hours beyond a day and signs included."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time
from typing import Any

import pyarrow as pa

DAY_US = 86_400_000_000
_MONTH_DAYS = 30  # as the engine compares them
_NS_PER_US = 1_000


def is_duration(kind: pa.DataType) -> bool:
    """Return True if clients see the type as MySQL's TIME."""
    return bool(pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind))


def durations_us(column: Any) -> list[int | None]:
    """Return the signed microseconds of each value of an Arrow column of times, durations or intervals."""
    kind = column.type
    if pa.types.is_time(kind):
        values: Iterable[time | None] = column.to_pylist()
        return [None if value is None else _of_day(value) for value in values]
    if pa.types.is_duration(kind):
        microseconds: list[int | None] = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        return microseconds
    return [duration_us(value) for value in column.to_pylist()]


def duration_us(value: Any) -> int | None:
    """Return the signed microseconds of an interval from Arrow: (months, days, nanoseconds)."""
    if value is None:
        return None
    months, days, nanoseconds = value
    return int((months * _MONTH_DAYS + days) * DAY_US + nanoseconds // _NS_PER_US)


def time_text(duration_us: int) -> str:
    """Return `[-]HH:MM:SS[.ffffff]`. Hours beyond 24 take the place of days."""
    seconds, micros = divmod(abs(duration_us), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if micros:
        text += f".{micros:06}"
    return f"-{text}" if duration_us < 0 else text


def _of_day(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond
