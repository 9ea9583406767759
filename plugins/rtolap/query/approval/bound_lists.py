"""Long lists of question marks, `x IN (?, ?, …)`: their values are written into the text when they come.

A question mark is a node of the tree, and ten thousand of them take the parser and the rules a second. Bound
values that are as plain as `value_lists` asks are therefore written out, in quotes, and are taken out of the
text again as one node. Others (NULL, doubles, dates, bytes, a backslash) stay parameters, with their list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from rtolap.query.approval.value_lists import MEMBERS_MIN, PASSED_OVER, Members, NotClosed

_MARKS = re.compile(
    rf"{PASSED_OVER}|(?P<before>\bIN\s*+\()\s*+(?P<list>\?(?:\s*+,\s*+\?){{{MEMBERS_MIN - 1},}}+)\s*+\)"
    r"|(?P<one>\?)",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class BoundText:
    """A text, and the values of the question marks that it still has, in their order."""

    text: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class ShortMarks:
    """A text whose long lists have one question mark each: it has the columns of the whole text.

    Attributes:
        count: of the whole text's question marks.
    """

    text: str
    count: int


def shortest(sql: str) -> ShortMarks | None:
    """Return the text without its long lists of question marks; None where it has none."""
    found = 0
    has_lists = False

    def shortened(piece: re.Match[str]) -> str:
        nonlocal found, has_lists
        if piece["open"] is not None:
            raise NotClosed
        if piece["list"] is not None:
            found += piece["list"].count("?")
            has_lists = True
            return f"{piece['before']}?)"
        found += piece["one"] is not None
        return piece[0]

    try:
        text = _MARKS.sub(shortened, sql)
    except NotClosed:  # the parser says so
        return None
    return ShortMarks(text, found) if has_lists else None


def written_out(sql: str, values: Sequence[object], bytes_max: int) -> BoundText | None:
    """Return the text with its long lists written out; None where it stays as it is, because no list is long
    and plain, the number of values is wrong, or the text would have more than `bytes_max`."""
    if len(values) < MEMBERS_MIN:
        return None
    left: list[object] = []
    at = 0

    def written(piece: re.Match[str]) -> str:
        nonlocal at
        if piece["open"] is not None:
            raise NotClosed
        marks = piece["list"].count("?") if piece["list"] is not None else int(piece["one"] is not None)
        own = values[at : at + marks]
        at += marks
        members = _members(own) if marks > 1 else None
        if members is None:
            left.extend(own)
            return piece[0]
        return f"{piece['before']}{members.sql()})"

    try:
        text = _MARKS.sub(written, sql)
    except NotClosed:
        return None
    if at != len(values) or len(left) == len(values) or len(text.encode(errors="replace")) > bytes_max:
        return None
    return BoundText(text, tuple(left))


def _members(values: Sequence[object]) -> Members | None:
    """Return the values as a list of one plain kind; None if they are none."""
    kinds = {type(value) for value in values}
    if kinds == {str}:
        texts = tuple(map(str, values))
        return None if any("\\" in text for text in texts) else Members("text", texts)
    if kinds <= {int, Decimal}:
        numbers = tuple(f"{value:f}" if isinstance(value, Decimal) else str(value) for value in values)
        return Members("number", numbers)
    return None
