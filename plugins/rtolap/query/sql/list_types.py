"""Long lists of values beside an operand: converted as a whole where each value would be converted alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from rtolap.query.approval.value_lists import Members
from rtolap.query.sql.loose_values import moment_of_text, number_of
from rtolap.query.sql.types import BOOLEAN, DATE, DATETIME, NULL, STRING, SqlType

PLAIN_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?", re.ASCII)
_PLAIN_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def beside(
    members: Members, operand: SqlType | None, warn_of_truncation: Callable[[str], None]
) -> Members | None:
    """Return the list as it compares with an operand of this type.

    The same object: it compares as it is. None: its values have to be looked at one by one.

    Args:
        warn_of_truncation: called with each text of which a part alone is a number.
    """
    if operand in (None, NULL):
        return members
    assert operand is not None
    if members.kind == "number":
        return members if operand.is_number and operand != BOOLEAN else None
    if operand == STRING:
        return members
    if operand == DATE:
        return Members("date", members.values) if all(map(_is_day, members.values)) else None
    if operand == DATETIME:
        return members if all(map(_is_moment, members.values)) else None
    if operand.is_number and operand != BOOLEAN:
        return _numbers(members, warn_of_truncation)
    return None


def _is_day(value: str) -> bool:
    if _PLAIN_DAY.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:  # as the 30th of February: the zero date, with a warning
        return False
    return True


def _is_moment(value: str) -> bool:
    return PLAIN_MOMENT.fullmatch(value) is not None and not moment_of_text(value)[1]


def _numbers(members: Members, warn_of_truncation: Callable[[str], None]) -> Members | None:
    numbers = [number_of(value) for value in members.values]
    if any("e" in number.digits.lower() for number in numbers):
        return None  # a double
    for number, value in zip(numbers, members.values, strict=True):
        if number.truncated:
            warn_of_truncation(value)
    return Members("number", tuple("-" * number.negative + number.digits for number in numbers))
