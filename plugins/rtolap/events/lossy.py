"""Finds numbers that the JSON reader would take with loss: 1.5 as an int, 1.555 as a decimal(10,2).

The reader truncates silently. This looks at the raw text of a batch, vectorised: every '.' or 'e' that
could belong to a number is walked back to its key, and only those under a column that cannot hold it are
reported. A report is a suspicion: the caller parses that record strictly and decides. No report is a proof,
for a key without escapes is compared as it stands, and one with an escape near its end is always reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]

_WALK_MAX = 400  # characters; a longer number, or more white space, is reported unseen
_WHOLE_DIGITS_MAX = 15  # beyond, the reader goes through a double for numbers with a point
_BLOCK_BYTES = 1 << 19
ANY_SCALE = 1 << 30
_DOT, _QUOTE, _COLON, _ZERO, _NINE, _BACKSLASH, _E, _SPACE = 46, 34, 58, 48, 57, 92, 101, 32
_LOWER = np.uint8(32)


class Strict(NamedTuple):
    """A column that must not lose digits. `scale`: digits allowed behind the point; None: whole numbers;
    ANY_SCALE: any number, which leaves exponents to be looked at."""

    key: str
    scale: int | None


class LossScreen:
    """The screen of some columns. `items`: numbers in arrays, which have no key, are reported, too."""

    def __init__(self, columns: Sequence[Strict], *, items: bool = False) -> None:
        self._items = items
        self._columns = [(_suffix(column.key), column.scale) for column in columns]

    def suspects(self, text: bytes) -> Places:
        """Return positions in `text` of suspicious points and exponents.

        The first 16 bytes must be padding.
        """
        if not self._columns and not self._items:
            return np.zeros(0, np.int64)
        chars = np.frombuffer(text, np.uint8)
        at = _marks(chars)
        if len(at) == 0:
            return at
        words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))
        escapes = b"\\" in text
        reported, others = self._short(chars, words, at, escapes=escapes)
        if len(others):
            reported += self._walked(chars, words, others, escapes=escapes)
        return np.unique(np.concatenate(reported))

    def _short(self, chars: Bytes, words: Words, at: Places, *, escapes: bool) -> tuple[list[Places], Places]:
        """Look at points in numbers as most are written: `"key":`, perhaps a space, and up to
        seven digits on either side.

        Returns those that are suspicious, and the marks that stand in anything else.
        """
        number = at - 1 - _digits_before(words[at - 8])
        number -= chars[number] == _SPACE
        last = words[number - 8]
        fraction = _digits_behind(words[np.minimum(at + 1, len(words) - 1)])
        short = (chars[at] == _DOT) & (chars[number] == _COLON) & (chars[number - 1] == _QUOTE)
        short &= (fraction < 8) & (at - number < 9) & (at + 1 < len(words))
        if escapes:
            short &= ~(_has_backslash(last) | _has_backslash(words[np.maximum(number - 16, 0)]))
        others = at[~short]
        if len(others):
            at, number, last, fraction = at[short], number[short], last[short], fraction[short]
        reported = []
        for (value, mask), scale in self._columns:
            hit = np.flatnonzero((last & mask) == value)
            if len(hit) == 0:
                continue
            if scale is None:
                loses = _loses(chars, at[hit], number[hit], scale)
            else:
                digits = fraction[hit]
                loses = (digits > scale) | ((chars[at[hit] + 1 + digits] | _LOWER) == _E)
            reported.append(at[hit[loses]])
        return [np.zeros(0, np.int64), *reported], others

    def _walked(self, chars: Bytes, words: Words, at: Places, *, escapes: bool) -> list[Places]:
        """Look at marks of numbers in any form."""
        number, endless = _back(chars, at - 1, _of_number)
        end, lost = _to_key(chars, number)
        has_key = ~(endless | lost) & (chars[end] == _QUOTE)
        reported = [at[endless | lost] if not self._items else at[~has_key]]
        at, number, end = at[has_key], number[has_key], end[has_key]
        last = words[end - 7]
        for (value, mask), scale in self._columns:
            hit = np.flatnonzero((last & mask) == value)
            if len(hit):
                reported.append(at[hit][_loses(chars, at[hit], number[hit], scale)])
        if escapes:
            escaped = _has_backslash(last) | _has_backslash(words[end - 15])
            reported.append(at[escaped])
        return reported


def _suffix(key: str) -> tuple[np.uint64, np.uint64]:
    """Return the last 8 bytes of `"key"` as a little-endian word, and the mask of those that count."""
    raw = f'"{key}"'.encode()[-8:]
    value = int.from_bytes(raw.rjust(8, b"\0"), "little")
    mask = int.from_bytes((b"\xff" * len(raw)).rjust(8, b"\0"), "little")
    return np.uint64(value), np.uint64(mask)


def _marks(chars: Bytes) -> Places:
    """Return every point before a digit, every e or E behind a digit or a point; in blocks that fit a
    cache."""
    marks = []
    for first in range(0, len(chars), _BLOCK_BYTES):
        block = chars[first : first + _BLOCK_BYTES]
        dots = np.flatnonzero(block == _DOT) + first
        marks.append(dots[_is_digit(chars[np.minimum(dots + 1, len(chars) - 1)])])
        # Letters are many and exponents few: what stands before is compared for all, and mostly none is left.
        before = chars[first - 1 : first - 1 + len(block)] if first else block[:-1]
        letters = block[len(block) - len(before) :]
        possible = (letters | _LOWER) == _E
        possible &= before - np.uint8(_DOT) <= _NINE - _DOT  # a point, a slash or a digit
        if possible.any():
            exponents = np.flatnonzero(possible) + first + len(block) - len(before)
            marks.append(exponents[_of_number(chars[exponents - 1])])
    return np.concatenate(marks)


def _is_digit(chars: Bytes) -> Flags:
    flags: Flags = np.less(chars - np.uint8(_ZERO), 10)
    return flags


def _is_zero(chars: Bytes) -> Flags:
    return np.equal(chars, _ZERO)


def _of_number(chars: Bytes) -> Flags:
    return _is_digit(chars) | np.equal(chars, _DOT)


def _is_space(chars: Bytes) -> Flags:
    flags: Flags = (chars == 32) | (chars == 10) | (chars == 13) | (chars == 9)
    return flags


def _back(chars: Bytes, at: Places, inside: Callable[[Bytes], Flags]) -> tuple[Places, Flags]:
    """Walk back while `inside`; (first position outside, whether the walk was given up)."""
    at = at.copy()
    live = np.arange(len(at))
    for _ in range(_WALK_MAX):
        live = live[inside(chars[at[live]])]
        if len(live) == 0:
            break
        at[live] -= 1
    given_up = np.zeros(len(at), bool)
    given_up[live] = True
    return at, given_up


def _to_key(chars: Bytes, at: Places) -> tuple[Places, Flags]:
    """Step back from a number over sign, quote, white space and colon to where a key's quote should be.

    Without a colon the position comes back on something that is no quote: the text then is no member's value.
    """
    at = at - ((chars[at] == 45) | (chars[at] == 43))
    at = at - (chars[at] == _QUOTE)
    at, lost = _back(chars, at, _is_space)
    colon = chars[at] == _COLON
    key, lost_again = _back(chars, at - 1, _is_space)
    return np.where(colon, key, 0), (lost | (colon & lost_again)) & (at >= 16)


def _loses(chars: Bytes, at: Places, number: Places, scale: int | None) -> Flags:
    """Return True where digits behind the point (or an exponent) exceed what the column holds."""
    is_exponent = chars[at] != _DOT
    forward = at + 1
    wanted = _is_zero if scale is None else _is_digit
    live = np.arange(len(at))
    for _ in range(_WALK_MAX):
        live = live[wanted(chars[forward[live]])]
        if len(live) == 0:
            break
        forward[live] += 1
    follows = chars[forward]
    more = _is_digit(follows) | ((follows | _LOWER) == _E)
    too_long = at - number - 1 > _WHOLE_DIGITS_MAX if scale is None else forward - at - 1 > scale
    flags: Flags = is_exponent | more | too_long
    return flags


def _no_digits(words: Words) -> Words:
    """Return the highest bit of every byte that is no digit."""
    x = words ^ _each(_ZERO)
    return (((x & _each(0x7F)) + _each(0x76)) | x) & _each(0x80)


def _digits_before(words: Words) -> Places:
    """Count the digits that stand without a gap at the end of a word of text, 0 to 8."""
    odd = _no_digits(words)
    odd |= odd >> np.uint64(8)
    odd |= odd >> np.uint64(16)
    odd |= odd >> np.uint64(32)  # now every byte up to the last one that is no digit
    return 8 - np.bitwise_count(odd).astype(np.int64)


def _digits_behind(words: Words) -> Places:
    """Count the digits that stand without a gap at the beginning of a word of text, 0 to 8."""
    odd = _no_digits(words)
    below = (odd & (~odd + np.uint64(1))) - np.uint64(1)  # all bits below the first byte that is no digit
    return np.bitwise_count(below).astype(np.int64) >> 3


def _each(byte: int) -> np.uint64:
    return np.uint64(0x0101010101010101 * byte)


def _has_backslash(words: Words) -> Flags:
    """Return True where any of a word's eight bytes is a backslash."""
    x = words ^ _each(_BACKSLASH)
    flags: Flags = np.not_equal((x - _each(1)) & ~x & _each(0x80), 0)
    return flags
