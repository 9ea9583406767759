"""Calendar arithmetic of derived time dimensions. Local time in the table's zone, without a zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from rtolap.model.cube import MINUTES, TIME_UNITS, TimeUnit

_FROM_HOURS: tuple[TimeUnit, ...] = ("hour", "day", "week", "month", "quarter", "year")
_COARSER: dict[TimeUnit, tuple[TimeUnit, ...]] = {
    "second": TIME_UNITS,
    "minute": (*MINUTES, *_FROM_HOURS),
    "five_minute": ("five_minute", "ten_minute", "fifteen_minute", "thirty_minute", *_FROM_HOURS),
    "ten_minute": ("ten_minute", "thirty_minute", *_FROM_HOURS),
    "fifteen_minute": ("fifteen_minute", "thirty_minute", *_FROM_HOURS),
    "thirty_minute": ("thirty_minute", *_FROM_HOURS),
    "hour": _FROM_HOURS,
    "day": ("day", "week", "month", "quarter", "year"),
    "week": ("week",),
    "month": ("month", "quarter", "year"),
    "quarter": ("quarter", "year"),
    "year": ("year",),
}
_LONGEST: dict[TimeUnit, timedelta] = {
    "second": timedelta(seconds=1),
    **{unit: timedelta(minutes=count) for unit, count in MINUTES.items()},
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
    "quarter": timedelta(days=92),
    "year": timedelta(days=366),
}
EPOCH = datetime(1970, 1, 1)


def refines(fine: TimeUnit, coarse: TimeUnit) -> bool:
    """Return True if the start of the fine unit determines the start of the coarse one."""
    return coarse in _COARSER[fine]


def coarsest_for(unit: TimeUnit, units: tuple[TimeUnit, ...]) -> TimeUnit | None:
    """Return the coarsest of the units that still determines `unit`."""
    fitting = [known for known in TIME_UNITS if known in units and refines(known, unit)]
    return fitting[-1] if fitting else None


def floor(value: datetime, unit: TimeUnit, first_weekday: int) -> datetime:
    """Return where the unit that holds `value` begins. `first_weekday` of weeks: 0 is Monday."""
    if unit in MINUTES:
        return value.replace(minute=value.minute // MINUTES[unit] * MINUTES[unit], second=0, microsecond=0)
    day = value.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "second":
            return value.replace(microsecond=0)
        case "hour":
            return value.replace(minute=0, second=0, microsecond=0)
        case "day":
            return day
        case "week":
            days = (day.weekday() - first_weekday) % 7
            return day - timedelta(days=days) if day - datetime.min >= timedelta(days=days) else datetime.min
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1)


def as_datetime(value: object) -> datetime | None:
    """Return a constant as a timestamp without a zone; None if it is not one."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) if value.tzinfo is None else None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return parsed if parsed.tzinfo is None else None
    return None


def text(value: datetime) -> str:
    """Format a time as predicates and SQL literals have it."""
    return value.strftime("%Y-%m-%d %H:%M:%S.%f") if value.year >= 1000 else value.isoformat(" ")


def next_start(value: datetime, unit: TimeUnit, first_weekday: int) -> datetime | None:
    """Return where the next unit after that of `value` begins; None beyond the calendar."""
    start, longest = floor(value, unit, first_weekday), _LONGEST[unit]
    return floor(start + longest, unit, first_weekday) if start <= datetime.max - longest else None


def to_utc_ms(local: datetime, zone: str, *, latest: bool) -> int:
    """Convert a local time to milliseconds UTC.

    An hour that clocks repeat gives its first or its last occurrence. The result is rounded down for the
    earliest and up for the latest, so that a range made of both is never too small.
    """
    info = ZoneInfo(zone)
    instants = [local.replace(tzinfo=info, fold=fold).astimezone(UTC).replace(tzinfo=None) for fold in (0, 1)]
    chosen = max(instants) if latest else min(instants)
    micros = (chosen - EPOCH) // timedelta(microseconds=1)
    return -(-micros // 1000) if latest else micros // 1000
