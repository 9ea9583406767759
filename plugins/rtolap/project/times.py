"""Which path of the records is the event time, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from rtolap.events.event_time import EventTimeParser
from rtolap.project.values import Leaf

# 2000 to 2100: a number outside of these is hardly a time
_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000}
_FIRST_S, _LAST_S = 946_684_800, 4_102_444_800
PATTERNS = (
    "%Y-%m-%d %H:%M:%S %z",
    "%Y/%m/%d %H:%M:%S",
    "%d/%b/%Y:%H:%M:%S %z",
    "%d.%m.%Y %H:%M:%S",
    "%Y%m%dT%H%M%S",
)
_TIME_NAME = re.compile(
    r"(?i)(^|[_.-])(ts|time|timestamp|datetime|date|when|at|day)($|[_.-])|time|date|stamp|(?-i:[a-z]At$)"
)
_FIRST_NAME = re.compile(r"(?i)^(event|record)?[_-]?(ts|time|timestamp|datetime)(_?(ms|us|s|utc))?$")


class TimeGuess(NamedTuple):
    """A path that may be the event time.

    Attributes:
        format: as a table declares it.
        reason: why it was taken, for people.
    """

    leaf: Leaf
    format: str
    reason: str


def time_guesses(leaves: Sequence[Leaf], records: int, formats: Sequence[str] = ()) -> list[TimeGuess]:
    """Return what may be the event time, the likeliest first: every record has it, and all values read.

    formats: the only ones that are tried; empty: all that are known.
    """
    found = []
    for at, leaf in enumerate(leaves):
        if leaf.records < records or len(leaf.kinds) != 1:
            continue
        for form in _formats(leaf, formats):
            named = _TIME_NAME.search(leaf.steps[-1]) is not None
            if not named and not formats and form.startswith("epoch"):
                continue  # any large number would do
            first = _FIRST_NAME.match(leaf.steps[-1]) is not None
            whole_days = form == "iso8601" and all(_is_day(each) for each in leaf.values)
            rank = (whole_days, not first, not named, len(leaf.steps), at)
            reason = f"every record has it, and all {leaf.records} values read as {form}"
            found.append((rank, TimeGuess(leaf, form, reason)))
            break
    return [guess for _, guess in sorted(found, key=lambda each: each[0])]


def _is_day(value: Any) -> bool:
    return len(value) <= len("2024-01-01") if isinstance(value, str) else not isinstance(value, datetime)


def time_formats(leaf: Leaf) -> list[str]:
    """Return the formats in which all values of the leaf are times."""
    return list(_formats(leaf, ()))


def _formats(leaf: Leaf, formats: Sequence[str]) -> Iterator[str]:
    if leaf.kinds == {"time"}:  # whatever the format says
        yield formats[0] if formats else "iso8601"
    elif leaf.kinds == {"integer"}:
        for form, unit in _UNITS.items():
            if formats and form not in formats:
                continue
            if formats or all(_FIRST_S * unit <= each < _LAST_S * unit for each in leaf.values):
                yield form
    elif leaf.kinds == {"string"}:
        raw = pa.array(leaf.values, pa.string())
        for form in formats or ("iso8601", *PATTERNS):
            read = EventTimeParser(form, "UTC").parse(raw)
            if not (read.invalid | read.missing).any():
                yield form
