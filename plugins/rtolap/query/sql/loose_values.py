"""Texts and numbers as MySQL reads them where a number or a moment is wanted: as much as there is of one.

A text begins with a number, or counts as 0. A text or a number that is no moment counts as the zero date,
which is before all others. The ignored rest is a truncation, and gives a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

_NUMBER = re.compile(r"\s*([-+]?)((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_MARK = r"[^\w\s]+"
_DELIMITED = re.compile(
    rf"\s*(\d{{1,4}}){_MARK}(\d{{1,2}}){_MARK}(\d{{1,2}})"
    rf"(?:(?:T|\s+)(\d{{1,2}})(?:{_MARK}(\d{{1,2}})(?:{_MARK}(\d{{1,2}})(?:\.(\d{{1,6}})\d*)?)?)?)?",
    re.ASCII,
)
_DIGITS = re.compile(
    r"\s*(\d{4}|\d\d)(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d)(?:\.(\d{1,6})\d*)?)?(?!\d)", re.ASCII
)
_LENGTHS = (6, 8, 12, 14)  # of a date, and of a moment, in digits alone
ZERO = datetime.min  # what is no moment
_YEAR_TURN = 70  # years of two digits are of 1970 to 2069
_NUMBER_DIGITS_MAX = 14


@dataclass(frozen=True)
class Number:
    """A number at the start of a text, as MySQL reads it.

    Attributes:
        digits: the number as a literal without a sign.
        truncated: True if the text holds more than a number, or none.
    """

    digits: str
    negative: bool
    truncated: bool


def number_of(text: str) -> Number:
    match = _NUMBER.match(text)
    if match is None:
        return Number("0", False, True)
    digits = match[2].rstrip(".")
    if "." in digits and "e" not in digits.lower():
        digits = digits.rstrip("0").rstrip(".")
    return Number(digits or "0", match[1] == "-", bool(text[match.end() :].strip()))


def moment_of_text(text: str) -> tuple[datetime, bool]:
    """Return the moment, and whether the text has more, or none."""
    match = _DELIMITED.match(text)
    if match is None:
        digits = len(re.match(r"\s*(\d*)", text, re.ASCII)[1].strip())  # type: ignore[index]
        match = _DIGITS.match(text) if digits in _LENGTHS else None
        if match is not None and digits in (6, 12) and len(match[1]) == 4:
            match = re.match(_DIGITS.pattern.replace(r"\d{4}|", ""), text, re.ASCII)
    moment = None if match is None else _moment(match.groups(default="0"))
    if match is None or moment is None:
        return ZERO, True
    return moment, bool(text[match.end() :].strip())


def moment_of_number(number: Decimal | int | float) -> tuple[datetime, bool]:
    """Return the moment that the digits of a number are, and whether there is none."""
    whole = int(number)
    if whole <= 0:
        return ZERO, True
    digits = str(whole)
    if len(digits) > _NUMBER_DIGITS_MAX or len(digits) in (7, 13):
        return ZERO, True
    width = 6 if len(digits) <= 6 else 8 if len(digits) == 8 else 12 if len(digits) <= 12 else 14
    moment, truncated = moment_of_text(digits.zfill(width))
    return moment, truncated


def _moment(parts: tuple[str, ...]) -> datetime | None:
    year, month, day, hour, minute, second = map(int, parts[:6])
    if len(parts[0]) <= 2:
        year += 2000 if year < _YEAR_TURN else 1900
    try:
        return datetime(year, month, day, hour, minute, second, int(parts[6].ljust(6, "0")))
    except ValueError:
        return None
