"""The starts of units of time, the obvious way: calendars of format and query are held against it."""

from __future__ import annotations

from datetime import datetime, timedelta

_MINUTES = {
    "minute": 1,
    "five_minute": 5,
    "ten_minute": 10,
    "fifteen_minute": 15,
    "thirty_minute": 30,
    "hour": 60,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def unit_start(local: datetime, unit: str, week_starts_on: str = "monday") -> datetime:
    """Return the start of the unit that holds `local`."""
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "second":
        return local.replace(microsecond=0)
    if unit in _MINUTES:
        width = timedelta(minutes=_MINUTES[unit])
        return midnight + (local - midnight) // width * width
    if unit in _MONTHS:
        months = _MONTHS[unit]
        return midnight.replace(day=1, month=(local.month - 1) // months * months + 1)
    if unit == "week":
        while _WEEKDAYS[midnight.weekday()].lower() != week_starts_on:
            midnight -= timedelta(days=1)
    return midnight
