"""Time zones as MySQL writes them: offsets such as '+05:30', and names of the time zone database."""

from __future__ import annotations

import re
from zoneinfo import available_timezones

from sqlglot import exp

from rtolap.query.sql.rules.macro_calls import macro

_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d{2})\Z")
_OFFSET_MINUTES = range(-(13 * 60 + 59), 14 * 60 + 1)
_UTC = frozenset(("SYSTEM", "UTC", "GMT", "ETC/UTC", "ETC/GMT"))
_SHIFTED = "MYSQL_SHIFTED"
_T = exp.DType
_CLOCKS = (exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp)
_CLOCK_NAMES = frozenset(("now", "sysdate"))
ZONE = "zone"  # of a call of UNIX_TIMESTAMP: the session's


def converted(moment: exp.Expr, source: object, target: object) -> exp.Expr:
    """Return `moment` of one zone in another; NULL where a zone is not known."""
    from_minutes, to_minutes = offset_minutes(source), offset_minutes(target)
    known = [
        each is not None or is_zone(zone) for each, zone in ((from_minutes, source), (to_minutes, target))
    ]
    if not all(known):
        return exp.cast(exp.null(), _T.TIMESTAMP)
    if from_minutes is not None and to_minutes is not None:
        return _shifted(moment, to_minutes - from_minutes)
    if from_minutes is not None:
        return _zoned(_shifted(moment, -from_minutes), "UTC", str(target))
    if to_minutes is not None:
        return _shifted(_zoned(moment, str(source), "UTC"), to_minutes)
    return _zoned(moment, str(source), str(target))


def offset_minutes(zone: object) -> int | None:
    """Return the minutes of an offset such as '+05:30', and of UTC; None for another zone."""
    if not isinstance(zone, str):
        return None
    if zone.upper() in _UTC:
        return 0
    match = _OFFSET.match(zone)
    if match is None or int(match[3]) > 59:
        return None
    minutes = (int(match[2]) * 60 + int(match[3])) * (-1 if match[1] == "-" else 1)
    return minutes if minutes in _OFFSET_MINUTES else None


def is_zone(zone: object) -> bool:
    """Return True for a name of the time zone database."""
    return isinstance(zone, str) and zone in available_timezones()


def _shifted(moment: exp.Expr, minutes: int) -> exp.Expr:
    return macro(_SHIFTED.removeprefix("MYSQL_"), moment, exp.Literal.number(minutes * 60_000_000))


def _zoned(moment: exp.Expr, source: str, target: str) -> exp.Expr:
    return exp.ConvertTimezone(
        source_tz=exp.Literal.string(source),
        target_tz=exp.Literal.string(target),
        timestamp=moment.copy(),
    )


def in_session_zone(tree: exp.Expr, zone: str) -> None:
    """Let the clock, and instants that become moments or come out of them, be those of a session's zone.

    Columns stay: they are moments without a zone, as MySQL's DATETIME is.
    """
    for node in reversed(list(tree.find_all(exp.Func))):
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
        if isinstance(node, _CLOCKS) or name in _CLOCK_NAMES:
            node.replace(_local(node, zone))
        elif isinstance(node, exp.CurrentDate) or name == "curdate":
            node.replace(exp.Date(this=_local(exp.CurrentTimestamp(), zone)))
        elif isinstance(node, exp.CurrentTime) or name == "curtime":
            node.replace(macro("CLOCK", _local(exp.CurrentTimestamp(), zone)))
        elif isinstance(node, exp.UnixToTime):
            pattern = node.args.get("format")
            moment = _local(exp.UnixToTime(this=node.this.copy()), zone)
            node.replace(moment if pattern is None else exp.TimeToStr(this=moment, format=pattern.copy()))
        elif name == "unix_timestamp":
            node.set(ZONE, exp.Literal.string(zone))  # its digits depend on what is written in it


def unzoned(moment: exp.Expr) -> exp.Expr:
    """Return what `converted` was given."""
    while True:
        if isinstance(moment, exp.ConvertTimezone):
            moment = moment.args["timestamp"]
        elif isinstance(moment, exp.Anonymous) and str(moment.this) == _SHIFTED:
            moment = moment.expressions[0]
        else:
            return moment


def _local(moment: exp.Expr, zone: str) -> exp.Expr:
    return converted(moment, "UTC", zone)
