"""JSON lines that are flat objects → texts of their columns, over whole blocks of lines.

A line is flat when it is one object, written without needless white space, whose values are strings without
escapes, numbers, `true`, `false` and `null`. Between quotes nothing of such a line has a meaning, so the
places of all quotes say where keys and values are. Lines with the same keys in the same order make a shape,
which is checked byte by byte for all of its lines at once. What passes is strict JSON, and its texts are
those that the engine would return. Any other line is left to the reader of single records, which also knows
why a line is bad.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.tokens import Bytes, numbers_in, without_padding

_SHAPES_MAX = 4  # of one block; each costs a pass over the lines that are left
_LINES_MIN = 8  # fewer are not worth a shape
_QUOTE, _COLON, _COMMA, _SPACE, _NEWLINE, _RETURN, _BACKSLASH = b'":, \n\r\\'
_OPEN, _CLOSE = b"{}"
_LITERALS = {"true": False, "false": False, "null": True}  # whether it is a null


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


class FlatRows(NamedTuple):
    """Lines of one shape.

    Attributes:
        rows: their places among the lines, ascending.
        columns: their values as text by name, of those names that the shape has.
    """

    rows: Longs
    columns: dict[str, pa.Array]


class _Pairs(NamedTuple):
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


def flat_rows(data: bytes, lines: Lines, names: Collection[str], *, as_written: bool) -> list[FlatRows]:
    """Return the lines that are flat, shape by shape, with the columns of `names` that each shape has.

    `as_written`: texts of numbers are their digits in the body; without it, they are as the engine writes
    them. `data` has to be UTF-8.
    """
    text = np.frombuffer(data, np.uint8)
    rows, pairs = _pairs(text, lines)
    starts, ends = lines.starts[rows], lines.ends[rows]
    wanted = {name.encode(): name for name in names}
    left = np.arange(len(rows))
    found = []
    for _ in range(_SHAPES_MAX):
        if len(left) < _LINES_MIN:
            break
        model = int(left[0])
        count, first = int(pairs.key_counts[model]), int(pairs.first_keys[model])
        keys = [
            data[pairs.opens[pair] + 1 : pairs.closes[pair]]
            for pair in pairs.keys[first : first + count].tolist()
        ]
        alike = left[pairs.key_counts[left] == count]
        if count and len(set(keys)) == count and not wanted.keys().isdisjoint(keys):
            shape = _Shape(data, text, pairs, keys, alike, starts[alike], ends[alike])
            columns = shape.columns(wanted, as_written=as_written)
            if shape.fits.any():
                if not shape.fits.all():
                    flat = pa.array(shape.fits)
                    columns = {name: values.filter(flat) for name, values in columns.items()}
                found.append(FlatRows(rows[alike[shape.fits]], columns))
            alike = alike[shape.same_keys]
        left = np.setdiff1d(left, alike, assume_unique=True)
    return found


def _pairs(text: Bytes, lines: Lines) -> tuple[Longs, _Pairs]:
    """Return the lines that may be flat, and their quotes in pairs."""
    quotes = np.flatnonzero(text == _QUOTE)
    bounds = np.searchsorted(quotes, np.append(lines.starts, len(text)))
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
    return rows, _Pairs(opens, closes, keys, ends, first_keys, last_keys - first_keys)


class _Shape:
    """Lines with as many keys as a model, whose keys are `names`.

    Attributes:
        fits: which lines are flat, and have these keys; final once the columns are there.
        same_keys: which lines have these keys, as far as was looked.
    """

    def __init__(
        self,
        data: bytes,
        text: Bytes,
        pairs: _Pairs,
        names: list[bytes],
        rows: Longs,
        starts: Longs,
        ends: Longs,
    ) -> None:
        self._data, self._text, self._pairs, self._names = data, text, pairs, names
        self._ends = ends
        at = pairs.first_keys[rows]
        # by key and line: the number of the pair that encloses it; behind the last key, that of the next line
        self._keys = np.empty((len(names) + 1, len(rows)), np.int64)
        for place in range(len(names)):
            self._keys[place] = pairs.keys[at + place]
        self._keys[-1] = pairs.ends[rows]
        self.fits = pairs.opens[self._keys[0]] == starts + 1
        self.same_keys = np.ones(len(rows), bool)

    def columns(self, wanted: dict[bytes, str], *, as_written: bool) -> dict[str, pa.Array]:
        """Return the values of the wanted keys; those of lines that do not fit are anything."""
        columns = {}
        for name, values in self._values(as_written=as_written):
            if name in wanted:
                columns[wanted[name]] = values
        return columns

    def _values(self, *, as_written: bool) -> Iterator[tuple[bytes, pa.Array]]:
        for place, name in enumerate(self._names):
            starts, ends, quoted = self._value_places(place, name)
            if not self.fits.any():
                return
            bounds = np.zeros(2 * len(starts) + 1, np.int32)
            bounds[1::2], bounds[2::2] = starts + quoted, ends - quoted
            pieces = pa.StringArray.from_buffers(
                2 * len(starts), pa.py_buffer(bounds), pa.py_buffer(self._data)
            )
            values = pieces.take(pa.array(np.arange(1, 2 * len(starts), 2, dtype=np.int32)))
            yield name, values if quoted.all() else self._tokens(values, quoted, as_written=as_written)

    def _value_places(self, place: int, name: bytes) -> tuple[Longs, Longs, Mask]:
        """Return where a key's values begin and end, quotes included, and which have quotes; those of lines
        that do not fit are empty."""
        pairs, text, fits = self._pairs, self._text, self.fits
        own, following = self._keys[place], self._keys[place + 1]
        opens, closes = pairs.opens[own], pairs.closes[own]
        same = closes - opens == len(name) + 1
        for at, character in enumerate(name, 1):
            same &= text.take(opens + at, mode="clip") == character
        self.same_keys &= same
        fits &= same
        starts = closes + 2
        starts = starts + (text[starts] == _SPACE)
        if place + 1 < len(self._names):
            ends = pairs.opens[following] - 1
            ends = ends - (text[ends] == _SPACE)
            fits &= text[ends] == _COMMA
        else:
            ends = self._ends - 1
        strings = following - own - 1
        quoted = strings == 1
        fits &= (strings <= 1) & (ends > starts)
        if quoted.any():
            inner = np.minimum(own + 1, len(pairs.opens) - 1)
            fits &= ~quoted | ((pairs.opens[inner] == starts) & (pairs.closes[inner] == ends - 1))
        if not fits.all():
            starts, ends, quoted = np.where(fits, starts, 0), np.where(fits, ends, 0), quoted & fits
        return starts, ends, quoted

    def _tokens(self, values: pa.StringArray, quoted: Mask, *, as_written: bool) -> pa.Array:
        """Return values of which some are not quoted, nulls among them. Lines with other tokens than numbers
        and literals do not fit."""
        bare = ~quoted
        found = numbers_in(values)
        known = quoted | found.plain
        null: Mask | None = None
        if not known.all():
            for literal, is_null in _LITERALS.items():
                equal = np.asarray(pc.equal(values, literal).to_numpy(zero_copy_only=False)) & bare
                known |= equal
                null = equal if is_null else null
            self.fits &= known
        if not as_written:
            if (padded := found.padded & bare).any():
                values = without_padding(values, padded)
            self.fits &= quoted | ~found.odd
        if null is None or not null.any():
            return values
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), values)
