"""The check that the event time of a table is readable: column type, format and zone fit each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from rtolap.model.problems import Problem, unknown_name
from rtolap.model.table import Table

NAMED_FORMATS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_days", "iso8601")
_TYPES = {
    "epoch_s": ("int", "bigint"),
    "epoch_ms": ("bigint",),
    "epoch_us": ("bigint",),
    "epoch_days": ("int", "bigint"),
    "iso8601": ("string", "timestamp"),
}
_PATTERN_TYPES = ("string", "timestamp")
_DIRECTIVES = frozenset("YymdHIMSfzpbBj%")
_DIRECTIVE = re.compile(r"%(.)")
_PROBE = datetime(2001, 2, 3, 4, 5, 6)


def time_problems(table: Table) -> Iterator[Problem]:
    """Return the problems of the event time. The columns must be valid already."""
    time = table.time
    names = {column.name: column for column in table.columns}
    if time.format not in NAMED_FORMATS:
        yield from _pattern_problems(time.format)
    if time.column not in names:
        expected = f"a column of table {table.name}"
        yield unknown_name(("time", "column"), "no such column", time.column, names, expected)
    else:
        kind = names[time.column].column_type.kind
        allowed = _TYPES.get(time.format, _PATTERN_TYPES)
        if kind not in allowed:
            yield Problem(
                ("time", "column"),
                f"a column of another type cannot hold {time.format}",
                expected=f"type {' or '.join(allowed)}",
                found=f"{time.column} {kind}",
            )
    if not zone_is_known(time.zone):
        yield Problem(
            ("time", "zone"),
            "unknown zone",
            expected="an IANA zone, as Europe/Berlin",
            found=repr(time.zone),
        )


def column_format_problems(table: Table) -> Iterator[Problem]:
    """Return the problems of the formats of columns. The columns must be valid already."""
    for place, column in enumerate(table.columns):
        key = ("columns", place, "format")
        if column.format == "iso8601":
            continue
        if column.column_type.kind not in ("date", "timestamp") or column.name == table.time.column:
            expected = "a date or timestamp that is not the event time, whose format is time.format"
            shown = f"{column.name} {column.type}"
            yield Problem(key, "not for this column", expected=expected, found=shown)
        elif column.format not in NAMED_FORMATS:
            yield from [msgspec.structs.replace(each, key=key) for each in _pattern_problems(column.format)]


def zone_is_known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder of the database, as "Europe"
        return False
    return True


def _pattern_problems(pattern: str) -> list[Problem]:
    key = ("time", "format")
    directives = _DIRECTIVE.findall(pattern)
    if not directives:
        expected = f"one of {', '.join(NAMED_FORMATS)}, or a pattern as %Y-%m-%d %H:%M"
        return [unknown_name(key, "unknown format", pattern, NAMED_FORMATS, expected)]
    unknown = sorted(set(directives) - _DIRECTIVES)
    if unknown or pattern.count("%") != 2 * directives.count("%") + sum(d != "%" for d in directives):
        expected = ", ".join(f"%{letter}" for letter in sorted(_DIRECTIVES))
        found = ", ".join(f"%{letter}" for letter in unknown) or "a single % at the end"
        return [Problem(key, "unknown directive in a pattern", expected=expected, found=found)]
    try:
        probe = _PROBE.strftime(pattern.replace("%z", "+0000"))
        read = datetime.strptime(probe, pattern.replace("%z", "+0000"))
    except ValueError as error:
        return [Problem(key, "the pattern does not read what it writes", found=f"{pattern!r} ({error})")]
    if read.date() != _PROBE.date():
        return [
            Problem(
                key, "the pattern holds no whole date", expected="year, month and day", found=repr(pattern)
            )
        ]
    return []
