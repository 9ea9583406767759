"""The members at many places of a block of JSON lines: keys that are compared, values as columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.integers import WORD_BYTES, Words, integers
from rtolap.stored.bodies.json.quotes import QUOTE
from rtolap.stored.bodies.json.tokens import Bytes, numbers_in, without_padding

_LITERALS = {"true": False, "false": False, "null": True}  # whether it is a null
_TRUE, _FALSE, _FOUR, _FIVE = (
    np.uint64(int.from_bytes(word, "little")) for word in (b"true", b"false", b"\xff" * 4, b"\xff" * 5)
)

# What a column is wanted as: text; or whole numbers or truth values where all of a block are such, else text.
Kind = Literal["text", "integer", "boolean"]
Wanted = Mapping[str, Kind]


class Member(NamedTuple):
    """A member of the lines of a shape.

    Attributes:
        name: the key, as it is written.
        written: what stands between the value before, or the line's begin, and the value.
        before: how many bytes of it stand before the key's opening quote.
    """

    name: bytes
    written: bytes
    before: int


class Block:
    """The text of a block, which is UTF-8, and the columns that are made of it.

    Attributes:
        text: its bytes.
    """

    def __init__(self, data: bytes, wanted: Wanted, *, as_written: bool) -> None:
        """Take a block. `as_written`: texts of numbers are their digits; without it, they are as the engine
        writes them."""
        self._padded: Bytes = np.frombuffer(data + bytes(WORD_BYTES), np.uint8)
        self._buffer = pa.py_buffer(self._padded)
        self._wanted, self._as_written = wanted, as_written
        self._names = {name.encode(): name for name in wanted}
        self.text = self._padded[: len(data)]
        # at each byte of the text the eight that begin there, as one number
        self._words: Words = np.ndarray((len(data) + 1,), "<u8", self._padded, 0, (1,))

    @cached_property
    def is_quote(self) -> Mask:
        return np.asarray(self.text == QUOTE)

    @cached_property
    def quotes(self) -> int:
        """Return the number of all quotes."""
        return int(np.count_nonzero(self.is_quote))

    def has_any(self, names: list[bytes]) -> bool:
        """Return whether any of the names is wanted."""
        return not self._names.keys().isdisjoint(names)

    def are(self, written: list[bytes], begins: Longs) -> Mask:
        """Return where the text is as `written` at the places; both by member, and places also by line."""
        same: Mask = np.ones(begins.shape, bool)
        for at in range(0, max(map(len, written)), WORD_BYTES):
            rows = [row for row, each in enumerate(written) if len(each) > at]
            parts = [written[row][at : at + WORD_BYTES] for row in rows]
            masks, expected = (
                np.array([int.from_bytes(each, "little") for each in words], np.uint64).reshape(-1, 1)
                for words in ([b"\xff" * len(part) for part in parts], parts)
            )
            places = begins + at if len(rows) == len(written) else begins[rows] + at
            found: Mask = np.asarray((self._word(places) & masks) == expected)
            if len(rows) == len(written):
                same &= found
            else:
                same[rows] &= found
        return same

    def columns(
        self, names: list[bytes], starts: Longs, ends: Longs, quoted: Mask
    ) -> tuple[dict[str, pa.Array], Mask]:
        """Return the wanted columns of what stands between the places, and which lines are flat.

        All places are by member and line. `quoted`: which values have quotes around them. The others have to
        be numbers as they are usually written, or literals; a line where one is not has anything.
        """
        count = starts.shape[1]
        columns: dict[str, pa.Array] = {}
        strings: list[int] = []
        tokens: list[int] = []
        all_quoted: list[bool] = np.logical_and.reduce(quoted, axis=1).tolist()
        any_quoted: list[bool] = np.logical_or.reduce(quoted, axis=1).tolist()
        for place, name in enumerate(names):
            column = self._names.get(name)
            kind = None if column is None else self._wanted[column]
            if all_quoted[place]:
                strings += [place] if kind is not None else []
                continue
            typed = None if any_quoted[place] else self._typed(kind, starts[place], ends[place])
            if typed is None:
                tokens.append(place)
            elif column is not None:
                columns[column] = typed
        placed = strings + tokens
        shift = quoted[placed]
        texts = self._texts((starts[placed] + shift).reshape(-1), (ends[placed] - shift).reshape(-1))
        fits: Mask = np.ones(count, bool)
        if tokens:
            first = len(strings) * count
            values, known = self._tokens(texts.slice(first), shift.reshape(-1)[first:])
            fits = np.logical_and.reduce(known.reshape(len(tokens), count))
            for number, place in enumerate(tokens):
                if (column := self._names.get(names[place])) is not None:
                    columns[column] = values.slice(number * count, count)
        for number, place in enumerate(strings):
            columns[self._names[names[place]]] = texts.slice(number * count, count)
        return columns, fits

    def _word(self, places: Longs) -> Words:
        """Return the eight bytes at the places, each as a number."""
        words: Words = self._words[np.minimum(places, len(self._words) - 1)]
        return words

    def _texts(self, starts: Longs, ends: Longs) -> pa.StringArray:
        bounds = np.zeros(2 * len(starts) + 1, np.int32)
        bounds[1::2], bounds[2::2] = starts, ends
        pieces = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(bounds), self._buffer)
        places = pa.array(np.arange(1, 2 * len(starts), 2, dtype=np.int32))
        return pc.take(pieces, places, boundscheck=False)

    def _typed(self, kind: Kind | None, starts: Longs, ends: Longs) -> pa.Array | None:
        """Return a column without text, if it is wanted so and all its values are of that kind."""
        if kind == "integer":
            found = integers(self.text, self._words, starts, ends)
            return None if found is None else pa.array(found)
        if kind == "boolean":
            lengths = ends - starts
            words = self._word(starts)
            true = ((words & _FOUR) == _TRUE) & (lengths == 4)
            false = ((words & _FIVE) == _FALSE) & (lengths == 5)
            return pa.array(true) if (true | false).all() else None
        return None

    def _tokens(self, values: pa.StringArray, quoted: Mask) -> tuple[pa.Array, Mask]:
        """Return values of which some are not quoted, nulls among them, and which of them are values."""
        bare = ~quoted
        found = numbers_in(values)
        known = quoted | found.plain
        nulls: Longs | None = None
        others = np.flatnonzero(~known)
        if len(others):
            literals = values.take(pa.array(others))
            for literal, is_null in _LITERALS.items():
                at = others[np.asarray(pc.equal(literals, literal).to_numpy(zero_copy_only=False))]
                known[at] = True
                nulls = at if is_null else nulls
        if found.has_fractions and not self._as_written:
            if (padded := found.padded & bare).any():
                values = without_padding(values, padded)
            known &= quoted | ~found.tiny
        if nulls is None or not len(nulls):
            return values, known
        null = np.zeros(len(values), bool)
        null[nulls] = True
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), values), known
