"""Lines of a block, and the pairs of quotes in those that may be flat JSON objects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.tokens import Bytes

QUOTE = ord('"')
_COLON, _SPACE, _NEWLINE, _RETURN, _BACKSLASH = b": \n\r\\"
_OPEN, _CLOSE = b"{}"


class Lines(NamedTuple):
    """The lines of a block that are not blank.

    Attributes:
        starts: where each begins.
        ends: where each ends, before its delimiter.
        plain: of each, whether it may be flat: an object without control characters and backslashes.
    """

    starts: Longs
    ends: Longs
    plain: Mask


class Pairs(NamedTuple):
    """The pairs of quotes in the lines that are looked at, and which of them enclose keys.

    Attributes:
        opens: the place of each opening quote.
        closes: the place of each closing quote.
        keys: the numbers of the pairs that enclose keys.
        ends: by line, the number behind that of its last pair.
        first_keys: by line, the place in `keys` of its first one.
        key_counts: by line, how many keys it has.
    """

    opens: Longs
    closes: Longs
    keys: Longs
    ends: Longs
    first_keys: Longs
    key_counts: Longs

    def keys_of(self, line: int) -> list[int]:
        """Return the pairs that enclose the keys of a line."""
        first = int(self.first_keys[line])
        keys: list[int] = self.keys[first : first + int(self.key_counts[line])].tolist()
        return keys


def lines_of(data: bytes) -> Lines:
    """Return the lines of a block; a carriage return before the newline is no part of one."""
    text = np.frombuffer(data, np.uint8)
    controls = np.flatnonzero(text < _SPACE)
    kinds = text[controls]
    newlines = controls[kinds == _NEWLINE]
    ends = newlines if len(data) == 0 or text[-1] == _NEWLINE else np.append(newlines, len(data))
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    plain = np.ones(len(ends), bool)
    if len(newlines) < len(controls):
        returned = (ends > starts) & (text[ends - 1] == _RETURN)
        ends = ends - returned
        others = controls[kinds != _NEWLINE]
        inside = np.searchsorted(starts, others, "right") - 1
        plain[inside[others < ends[inside]]] = False
    odd = np.flatnonzero((ends <= starts) | (text[np.minimum(starts, max(len(text) - 1, 0))] != _OPEN))
    if len(odd):
        plain[odd] = False
        blank = [row for row in odd.tolist() if not data[starts[row] : ends[row]].strip()]
        starts, ends, plain = (np.delete(each, blank) for each in (starts, ends, plain))
    if len(ends):
        plain &= (ends - starts >= 2) & (text[ends - 1] == _CLOSE)
    if b"\\" in data:
        escapes = np.flatnonzero(text == _BACKSLASH)
        inside = np.searchsorted(starts, escapes, "right") - 1
        plain[inside[inside >= 0]] = False
    return Lines(starts, ends, plain)


def pairs_in(text: Bytes, lines: Lines) -> tuple[Longs, Pairs]:
    """Return the lines that may be flat, and their quotes in pairs."""
    quotes = np.flatnonzero(text == QUOTE)
    bounds = _quote_bounds(quotes, lines, len(text))
    counts = np.diff(bounds)
    usable = lines.plain & ((counts & 1) == 0)
    rows = np.flatnonzero(usable)
    if len(rows) < len(usable):
        quotes = quotes[bounds[0] :][np.repeat(usable, counts)]
        counts = counts[rows]
    opens, closes = quotes[::2], quotes[1::2]
    ends = np.cumsum(counts >> 1)
    is_key = text[closes + 1] == _COLON  # a line ends with a brace, so that something follows each quote
    keys = np.flatnonzero(is_key)
    keys_so_far = np.zeros(len(is_key) + 1, np.int64)
    np.cumsum(is_key, out=keys_so_far[1:])
    last_keys = keys_so_far[ends]
    first_keys = np.zeros(len(rows), np.int64)
    first_keys[1:] = last_keys[:-1]
    return rows, Pairs(opens, closes, keys, ends, first_keys, last_keys - first_keys)


def _quote_bounds(quotes: Longs, lines: Lines, size: int) -> Longs:
    """Return how many quotes stand before each line, and before the end."""
    count = len(lines.starts)
    each = len(quotes) // max(count, 1)
    if each and each * count == len(quotes):  # mostly all lines have as many
        firsts, lasts = quotes[::each], quotes[each - 1 :: each]
        if bool((firsts >= lines.starts).all()) and bool((lasts < lines.ends).all()):
            return np.arange(0, len(quotes) + 1, each)
    return np.searchsorted(quotes, np.append(lines.starts, size))
