"""Formats of MySQL's dates and times: STR_TO_DATE and TIME_FORMAT, and the weeks of DATE_FORMAT.

A format is written in the statement, so its text decides what the engine reads. STR_TO_DATE becomes one
regular expression whose groups are the parts. A text that does not fit is NULL; parts
that it lacks at its end are zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import exactly

FORMAT_CHARACTERS_MAX = 256
_PIECE = re.compile(r"%.|.", re.DOTALL)
_EXPANDED = {"%T": "%H:%i:%S", "%r": "%I:%i:%S %p"}
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_MONTHS_SHORT = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_DAYS_SHORT = "mon|tue|wed|thu|fri|sat|sun"
_TWO_DIGITS = r"\d{1,2}"
_READ: dict[str, tuple[str, str]] = {  # letter → which part of a moment it is, and its pattern
    "Y": ("year", r"\d{1,4}"),
    "y": ("year", _TWO_DIGITS),
    **dict.fromkeys("mc", ("month", _TWO_DIGITS)),
    "M": ("month_name", f"(?i:{_MONTHS})"),
    "b": ("month_name", f"(?i:{_MONTHS_SHORT})"),
    **dict.fromkeys("de", ("day", _TWO_DIGITS)),
    "D": ("day", _TWO_DIGITS),
    "j": ("day_of_year", r"\d{1,3}"),
    **dict.fromkeys("Hk", ("hour", _TWO_DIGITS)),
    **dict.fromkeys("hIl", ("hour_of_half", _TWO_DIGITS)),
    "p": ("half", "(?i:am|pm)"),
    "i": ("minute", _TWO_DIGITS),
    **dict.fromkeys("sS", ("second", _TWO_DIGITS)),
    "f": ("fraction", r"\d{1,6}"),
    **dict.fromkeys("Xx", ("week_year", r"\d{1,4}")),
    **dict.fromkeys("Vv", ("week", r"[1-5]\d|0?[1-9]")),
    **dict.fromkeys("Uu", ("week", _TWO_DIGITS)),
    "w": ("weekday", "[0-6]"),
    "W": ("weekday", f"(?i:{_DAYS})"),
    "a": ("weekday", f"(?i:{_DAYS_SHORT})"),
}
_OF_A_DATE = frozenset(("year", "month", "month_name", "day", "day_of_year", "week", "week_year"))
_WEEKS = {"XV": True, "xv": False, "YU": True, "Yu": False}  # year and week → whether weeks begin on Sunday
_OF_A_TIME = frozenset(("hour", "hour_of_half", "minute", "second", "fraction", "half"))
_SECOND_US = 1_000_000
_MINUTE_US, _HOUR_US = 60 * _SECOND_US, 3600 * _SECOND_US
_SHOWN: dict[str, tuple[int, int | None, int]] = {  # letter → unit, how many there are of it, digits
    "H": (_HOUR_US, None, 2),
    "k": (_HOUR_US, None, 1),
    "i": (_MINUTE_US, 60, 2),
    "s": (_SECOND_US, 60, 2),
    "S": (_SECOND_US, 60, 2),
    "f": (1, _SECOND_US, 6),
}


def str_to_date(node: exp.Expr) -> exp.Expr:
    """Return STR_TO_DATE(text, format): a date, a time or a moment, depending on the parts in the format."""
    text, written = exactly(node, 2)
    format_text = written_format(written, "STR_TO_DATE")
    groups, pattern = _reading(format_text)

    def part(name: str, default: str) -> exp.Expr:
        if name not in groups:
            return exp.Literal.string(default)
        return exp.Anonymous(
            this="MYSQL_GROUP",
            expressions=[
                text.copy(),
                exp.Literal.string(pattern),
                exp.Literal.number(groups[name]),
                exp.Literal.string(default),
            ],
        )

    has_date, has_time = not _OF_A_DATE.isdisjoint(groups), not _OF_A_TIME.isdisjoint(groups)
    hour = part("hour", "0")
    if "hour_of_half" in groups:
        hour = macro("HOUR_OF_HALF", part("hour_of_half", "12"), part("half", "am"))
    clock = macro("READ_TIME", hour, part("minute", "0"), part("second", "0"), part("fraction", "0"))
    year = macro("YEAR_DIGITS", part("year", "0000"))
    if "week" in groups or "week_year" in groups:
        week_year = macro("YEAR_DIGITS", part("week_year", "0000")) if "week_year" in groups else year
        sunday_first = exp.Boolean(this=_weeks_begin_on_sunday(format_text))
        day = macro("READ_WEEK", week_year, part("week", "0"), part("weekday", "1"), sunday_first)
    elif "day_of_year" in groups:
        day = macro("READ_DAY", year, part("day_of_year", "0"))
    else:
        month = part("month", "0")
        if "month_name" in groups:
            month = macro("MONTH_NUMBER", part("month_name", ""))
        day = macro("READ_DATE", year, month, part("day", "0"))
    if has_date and has_time:
        return macro("MOMENT_AT", day, clock)
    if has_time:
        return macro("WITHIN_TIME", clock)
    return day


def time_format(node: exp.Expr) -> exp.Expr:
    """Return TIME_FORMAT(time, format) as the engine computes it."""
    value, written = exactly(node, 2)
    time = macro("TIME", value)
    pieces: list[exp.Expr] = [macro("TIME_SIGN", time)]
    for piece in _pieces(written_format(written, "TIME_FORMAT")):
        if len(piece) == 1 or piece[1] not in "HkhIlisSfp":
            if len(piece) == 2 and piece[1].isalpha():
                raise _unread(piece, "TIME_FORMAT", "%H, %k, %h, %I, %l, %i, %s, %f, %p, %r and %T")
            pieces.append(exp.Literal.string(piece[-1]))
            continue
        pieces.append(_shown(piece[1], time))
    text = pieces[0]
    for following in pieces[1:]:
        text = exp.DPipe(this=text, expression=following)
    return exp.paren(text, copy=False)


def written_format(node: exp.Expr, function: str) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise UnsupportedSql(
            f"unsupported SQL: {function} with a format that is not written in the statement",
            expected="a text such as '%Y-%m-%d'",
        )
    if len(str(node.this)) > FORMAT_CHARACTERS_MAX:
        raise UnsupportedSql(
            f"unsupported SQL: a format of {len(str(node.this))} characters",
            expected=f"at most {FORMAT_CHARACTERS_MAX}",
        )
    return str(node.this)


def _weeks_begin_on_sunday(pattern: str) -> bool:
    letters = [piece[1] for piece in _PIECE.findall(pattern) if len(piece) == 2]
    named = "".join(letter for letter in "XxYVvUu" if letter in letters)
    if named not in _WEEKS or not {"W", "a", "w"} & set(letters):
        raise UnsupportedSql(
            "unsupported SQL: STR_TO_DATE with a week that has no year or no day",
            expected="%X with %V, %x with %v, or %Y with %U or %u, and a day of the week (%W, %a or %w)",
        )
    return _WEEKS[named]


def _pieces(pattern: str) -> Iterator[str]:
    for piece in _PIECE.findall(pattern):
        yield from _PIECE.findall(_EXPANDED[piece]) if piece in _EXPANDED else (piece,)


def _reading(pattern: str) -> tuple[dict[str, int], str]:
    """Return the number of each part's group, and the regular expression."""
    groups: dict[str, int] = {}
    elements: list[str] = []
    for piece in _pieces(pattern):
        if piece.isspace():
            continue  # spaces of the text are passed over wherever they are
        if len(piece) == 1 or not piece[1].isalpha():
            elements.append(re.escape(piece[-1]))
            continue
        if piece[1] not in _READ:
            raise _unread(piece, "STR_TO_DATE", "parts of a date or a time")
        name, matched = _READ[piece[1]]
        tail = "[a-zA-Z]{2}" if piece[1] == "D" else ""
        if name in groups:
            elements.append(matched + tail)
            continue
        groups[name] = len(groups) + 1
        elements.append(f"({matched}){tail}")
    expression = ""
    for element in reversed(elements):  # a text may end before any element
        expression = rf"\s*(?:$|{element}{expression})"
    return groups, f"^{expression}"


def _shown(letter: str, time: exp.Expr) -> exp.Expr:
    if letter == "p":
        hour = macro("TIME_PART", time, exp.Literal.number(_HOUR_US), exp.Literal.number(24))
        is_morning = exp.LT(this=hour, expression=exp.Literal.number(12))
        return exp.case().when(is_morning, exp.Literal.string("AM")).else_(exp.Literal.string("PM"))
    if letter in "hIl":
        return macro("HALF_HOUR", time, exp.Literal.number(1 if letter == "l" else 2))
    unit_us, within, width = _SHOWN[letter]
    bound = exp.null() if within is None else exp.Literal.number(within)
    part = macro("TIME_PART", time, exp.Literal.number(unit_us), bound)
    return macro("DIGITS", part, exp.Literal.number(width))


def _unread(piece: str, function: str, expected: str) -> UnsupportedSql:
    return UnsupportedSql(f"unsupported SQL: {function} with {piece}", expected=expected)
