"""Levels of merging and their intervals: those of the calendar in UTC, as segments are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from rtolap.model.cube import MergePolicy
from rtolap.model.segment import SegmentRange

MergeLevel = Literal["day", "month"]
LEVELS: tuple[MergeLevel, ...] = ("day", "month")  # finest first
DAY_MS = 86_400_000


def interval_of(level: MergeLevel, instant_ms: int) -> SegmentRange:
    """Return the interval of the level that holds an instant."""
    day_ms = instant_ms // DAY_MS * DAY_MS
    if level == "day":
        return SegmentRange(day_ms, day_ms + DAY_MS)
    first = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=day_ms)).replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return SegmentRange(_ms(first), _ms(following))


def _ms(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def levels_of(policy: MergePolicy) -> tuple[MergeLevel, ...]:
    """Return the levels of a policy, finest first."""
    return tuple(level for level in LEVELS if level in policy.to)
