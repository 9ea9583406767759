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
from numpy.typing import NDArray

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.quotes import QUOTE, Lines, Pairs, pairs_in
from rtolap.stored.bodies.json.tokens import Bytes, numbers_in, without_padding

_SHAPES_MAX = 4  # of one block; each costs a pass over the lines that are left
_WORD_BYTES = 8
_LINES_MIN = 8  # fewer are not worth a shape
_COMMA, _SPACE = b", "
_LITERALS = {"true": False, "false": False, "null": True}  # whether it is a null


class FlatRows(NamedTuple):
    """Lines of one shape.

    Attributes:
        rows: their places among the lines, ascending.
        columns: their values as text by name, of those names that the shape has.
    """

    rows: Longs
    columns: dict[str, pa.Array]


def flat_rows(data: bytes, lines: Lines, names: Collection[str], *, as_written: bool) -> list[FlatRows]:
    """Return the lines that are flat, shape by shape, with the columns of `names` that each shape has.

    `as_written`: texts of numbers are their digits in the body; without it, they are as the engine writes
    them. `data` has to be UTF-8.
    """
    padded = np.frombuffer(data + bytes(_WORD_BYTES), np.uint8)
    text = padded[: len(data)]
    rows, pairs = pairs_in(text, lines)
    starts, ends = lines.starts[rows], lines.ends[rows]
    wanted = {name.encode(): name for name in names}
    left = np.ones(len(rows), bool)
    found = []
    for _ in range(_SHAPES_MAX):
        alike = np.flatnonzero(left)
        if len(alike) < _LINES_MIN:
            break
        model = int(alike[0])
        keys = pairs.keys_of(model)
        if not (pairs.key_counts[alike] == len(keys)).all():
            alike = alike[pairs.key_counts[alike] == len(keys)]
        names_found = [data[pairs.opens[key] + 1 : pairs.closes[key]] for key in keys]
        left[alike] = False
        if keys and len(set(names_found)) == len(keys) and not wanted.keys().isdisjoint(names_found):
            layout = _layout(data, pairs, keys, names_found, int(starts[model]))
            shape = _Shape(padded, pairs, layout, alike, starts[alike], ends[alike])
            columns = shape.columns(wanted, as_written=as_written)
            if shape.fits.all():
                found.append(FlatRows(rows[alike], columns))
            elif shape.fits.any():
                flat = pa.array(shape.fits)
                columns = {name: values.filter(flat) for name, values in columns.items()}
                found.append(FlatRows(rows[alike[shape.fits]], columns))
            left[alike[~shape.same_keys]] = True
            left[model] = False
    return found


class _Key(NamedTuple):
    """A key of a shape.

    Attributes:
        name: the key.
        written: what stands between the value before, or the line's begin, and the value.
        before: how many bytes of it stand before the key's opening quote.
    """

    name: bytes
    written: bytes
    before: int


def _layout(data: bytes, pairs: Pairs, keys: list[int], names: list[bytes], start: int) -> list[_Key]:
    """Return the keys of a line with what is written around them: a space may follow a colon or a comma."""
    layout = []
    for place, (key, name) in enumerate(zip(keys, names, strict=True)):
        opened, closed = int(pairs.opens[key]), int(pairs.closes[key])
        gap = b" " if data[closed + 2] == _SPACE else b""
        lead = b"{" if not place else b", " if data[opened - 1] == _SPACE else b","
        layout.append(_Key(name, lead + b'"' + name + b'":' + gap, len(lead)))
    return layout


class _Shape:
    """Lines with as many keys as a model, whose keys and spaces are those of `layout`.

    Attributes:
        fits: which lines are flat, and have these keys; final once the columns are there.
        same_keys: which lines have these keys, as far as was looked.
    """

    def __init__(
        self, padded: Bytes, pairs: Pairs, layout: list[_Key], rows: Longs, starts: Longs, ends: Longs
    ) -> None:
        self._text, self._layout, self._ends = padded, layout, ends
        count = len(rows)
        # at each byte of the text the eight that begin there, as one number
        self._words: NDArray[np.uint64] = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
        # by key and line: the number of the pair that encloses it; behind the last key, that of the next line
        self._keys = np.empty((len(layout) + 1, count), np.int64)
        if count == len(pairs.key_counts):
            self._keys[:-1] = pairs.keys.reshape(count, len(layout)).T
        else:
            at = pairs.first_keys[rows]
            for place in range(len(layout)):
                self._keys[place] = pairs.keys[at + place]
        self._keys[-1] = pairs.ends[rows]
        self._opens = pairs.opens[self._keys[:-1]]
        self._pieces = pa.array(np.arange(1, 2 * count, 2, dtype=np.int32))
        self.fits = self._opens[0] == starts + 1
        self.same_keys = np.ones(count, bool)

    def columns(self, wanted: dict[bytes, str], *, as_written: bool) -> dict[str, pa.Array]:
        """Return the values of the wanted keys; those of lines that do not fit are anything."""
        columns = {}
        for name, values in self._values(as_written=as_written):
            if name in wanted:
                columns[wanted[name]] = values
        return columns

    def _values(self, *, as_written: bool) -> Iterator[tuple[bytes, pa.Array]]:
        text = pa.py_buffer(self._text)
        for place, key in enumerate(self._layout):
            starts, ends, quoted = self._value_places(place, key)
            if not self.fits.any():
                return
            bounds = np.zeros(2 * len(starts) + 1, np.int32)
            np.add(starts, quoted, out=bounds[1::2], casting="unsafe")
            np.subtract(ends, quoted, out=bounds[2::2], casting="unsafe")
            pieces = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(bounds), text)
            values = pc.take(pieces, self._pieces, boundscheck=False)
            yield key.name, values if quoted.all() else self._tokens(values, quoted, as_written=as_written)

    def _value_places(self, place: int, key: _Key) -> tuple[Longs, Longs, Mask]:
        """Return where a key's values begin and end, quotes included, and which have quotes; those of lines
        that do not fit are empty."""
        text, fits = self._text, self.fits
        begins = self._opens[place] - key.before
        same = self._are(key.written, begins)
        self.same_keys &= same
        fits &= same
        starts = begins + len(key.written)
        if place + 1 < len(self._layout):
            ends = self._opens[place + 1] - self._layout[place + 1].before
        else:
            ends = self._ends - 1
        strings = self._keys[place + 1] - self._keys[place] - 1  # pairs of quotes behind that of the key
        least, most = int(strings.min()), int(strings.max())
        quoted = np.full(len(starts), least == 1) if least == most else strings == 1
        if most > 1:
            fits &= strings <= 1
        fits &= ends - starts > quoted
        if most:
            enclosed = (text.take(starts, mode="clip") == QUOTE) & (text[ends - 1] == QUOTE)
            fits &= enclosed if least else enclosed | ~quoted
        if not fits.all():
            starts, ends, quoted = np.where(fits, starts, 0), np.where(fits, ends, 0), quoted & fits
        return starts, ends, quoted

    def _are(self, written: bytes, begins: Longs) -> Mask:
        """Return where the text is as `written` at the places."""
        same: Mask | None = None
        at = 0
        while at < len(written):
            part = written[at : at + _WORD_BYTES]
            if len(part) <= 2:  # single bytes are found faster than words
                for offset, byte in enumerate(part, at):
                    found = self._text.take(begins + offset, mode="clip") == byte
                    same = found if same is None else same & found
            else:
                words = self._words[np.minimum(begins + at, len(self._words) - 1)]
                if len(part) < _WORD_BYTES:
                    words &= np.uint64((1 << 8 * len(part)) - 1)
                found = words == np.uint64(int.from_bytes(part, "little"))
                same = found if same is None else same & found
            at += _WORD_BYTES
        assert same is not None, "a key is never written as nothing"
        return same

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
        if found.has_fractions and not as_written:
            if (padded := found.padded & bare).any():
                values = without_padding(values, padded)
            self.fits &= quoted | ~found.tiny
        if null is None or not null.any():
            return values
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), values)
