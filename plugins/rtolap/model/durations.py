"""Durations as people write them: `500ms`, `30s`, `15m`, `6h`, `1d`, `2w`, `1h30m`."""

from __future__ import annotations

import re

from rtolap.base.errors import DefinitionError

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TERM = re.compile(r"(\d{1,12})(ms|w|d|h|m|s)")
_WHOLE = re.compile(r"(?:\d{1,12}(?:ms|w|d|h|m|s))+")

EXPECTED = "a duration such as 500ms, 30s, 15m, 6h, 1d or 1h30m"


def parse_duration_ms(text: str) -> int:
    """Parse a duration to milliseconds. Raises DefinitionError unless it is a whole number of units."""
    cleaned = text.strip().lower().replace(" ", "")
    if not _WHOLE.fullmatch(cleaned):
        raise DefinitionError("not a duration", expected=EXPECTED, found=repr(text))
    return sum(int(amount) * _UNITS_MS[unit] for amount, unit in _TERM.findall(cleaned))


def format_duration(duration_ms: int) -> str:
    """Return the shortest exact spelling: `86400000` → `1d`; parse_duration_ms reads it back."""
    if duration_ms == 0:
        return "0s"
    terms = []
    rest = duration_ms
    for unit, unit_ms in _UNITS_MS.items():
        amount, rest = divmod(rest, unit_ms)
        if amount:
            terms.append(f"{amount}{unit}")
    return "".join(terms)
