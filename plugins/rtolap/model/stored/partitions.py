"""Range partitions by time: which one an instant is in, which must exist, and which have expired. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from rtolap.base.errors import Refused
from rtolap.model.stored.table import PartitionUnit, RangePartitions

_NAME = {"hour": "p%Y%m%d%H", "day": "p%Y%m%d", "week": "p%Y%m%d", "month": "p%Y%m", "year": "p%Y"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class PartitionRange(msgspec.Struct, frozen=True, order=True):
    """`[start_ms, end_ms)`, in milliseconds since the epoch, UTC."""

    start_ms: int
    end_ms: int
    name: str


# The only partition of a table without any: all of time.
WHOLE = PartitionRange(-(1 << 63), (1 << 63) - 1, "all")


def partition_of(instant_ms: int, unit: PartitionUnit) -> PartitionRange:
    """Return the partition of an instant. Weeks begin on Monday. Raises Refused beyond the calendar's years 1
    to 9998."""
    try:
        start = _floor(_EPOCH + instant_ms * _MS, unit)
        end = _next(start, unit)
    except (OverflowError, ValueError) as error:
        raise Refused(
            "an instant is outside the calendar", expected="years 1 to 9998", found=f"{instant_ms} ms"
        ) from error
    # strftime does not pad years before 1000 everywhere
    name = start.strftime(_NAME[unit].replace("%Y", f"{start.year:04d}"))
    return PartitionRange((start - _EPOCH) // _MS, (end - _EPOCH) // _MS, name)


def to_create(
    policy: RangePartitions, now_ms: int, existing: Iterable[PartitionRange]
) -> tuple[PartitionRange, ...]:
    """Return the present partition and `ahead` more, as far as they are not there yet, in order."""
    known = {partition.start_ms for partition in existing}
    wanted: list[PartitionRange] = []
    instant_ms = now_ms
    for _ in range(policy.ahead + 1):
        partition = partition_of(instant_ms, policy.unit)
        if partition.start_ms not in known:
            wanted.append(partition)
        instant_ms = partition.end_ms
    return tuple(wanted)


def to_drop(
    policy: RangePartitions, now_ms: int, existing: Iterable[PartitionRange]
) -> tuple[PartitionRange, ...]:
    """Return the partitions that ended `retention_ms` ago or earlier, in order."""
    if policy.retention_ms is None:
        return ()
    return tuple(sorted(part for part in existing if part.end_ms + policy.retention_ms <= now_ms))


def _floor(instant: datetime, unit: PartitionUnit) -> datetime:
    if unit == "hour":
        return instant.replace(minute=0, second=0, microsecond=0)
    day = instant.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(month=1, day=1)


def _next(start: datetime, unit: PartitionUnit) -> datetime:
    match unit:
        case "hour":
            return start + timedelta(hours=1)
        case "day":
            return start + timedelta(days=1)
        case "week":
            return start + timedelta(weeks=1)
        case "month":
            return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        case "year":
            return start.replace(year=start.year + 1)
