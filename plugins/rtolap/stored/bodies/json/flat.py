"""JSON lines that are flat objects → their columns, over whole blocks of lines.

A line is flat when it is one object, written without needless white space, whose values are strings without
escapes, numbers, `true`, `false` and `null`. Between quotes nothing of such a line has a meaning, so the
places of all quotes say where keys and values are. Lines with the same keys in the same order make a shape,
which is checked byte by byte for all of its lines at once. What passes is strict JSON, and its texts are
those that the engine would return. Any other line is left to the reader of single records, which also knows
why a line is bad. Where all lines of a block are of one shape, fewer places say the same (`uniform`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.stored.bodies.batches import Longs, Mask
from rtolap.stored.bodies.json.members import Block, Member, Wanted
from rtolap.stored.bodies.json.quotes import QUOTE, Lines, Pairs, pairs_in
from rtolap.stored.bodies.json.uniform import uniform_columns

_SHAPES_MAX = 4  # of one block; each costs a pass over the lines that are left
_LINES_MIN = 8  # fewer are not worth a shape
_SPACE = ord(" ")


class FlatRows(NamedTuple):
    """Lines of one shape.

    Attributes:
        rows: their places among the lines, ascending.
        columns: their values by name, of those names that the shape has: as text, or as they are wanted.
    """

    rows: Longs
    columns: dict[str, pa.Array]


def flat_rows(data: bytes, lines: Lines, wanted: Wanted, *, as_written: bool) -> list[FlatRows]:
    """Return the lines that are flat, shape by shape, with the wanted columns that each shape has.

    `as_written`: texts of numbers are their digits in the body; without it, they are as the engine writes
    them. `data` has to be UTF-8.
    """
    if len(lines.starts) < _LINES_MIN:
        return []
    block = Block(data, wanted, as_written=as_written)
    if lines.plain.all():
        found = _uniform(data, block, lines)
        if found is not None:
            return [found]
    return _shapes(data, block, lines)


def _uniform(data: bytes, block: Block, lines: Lines) -> FlatRows | None:
    """Return the lines of a block that are all of the first one's shape; None where some are of others."""
    first = Lines(lines.starts[:1], lines.ends[:1], lines.plain[:1])
    rows, pairs = pairs_in(block.text[: int(first.ends[0])], first)
    if not len(rows):
        return None
    members = _members(data, pairs, 0, int(first.starts[0]), block)
    found = uniform_columns(block, lines, members) if members else None
    return None if found is None else _fitting(np.arange(len(lines.starts)), *found)


def _shapes(data: bytes, block: Block, lines: Lines) -> list[FlatRows]:
    rows, pairs = pairs_in(block.text, lines)
    starts, ends = lines.starts[rows], lines.ends[rows]
    left = np.ones(len(rows), bool)
    found = []
    for _ in range(_SHAPES_MAX):
        alike = np.flatnonzero(left)
        if len(alike) < _LINES_MIN:
            break
        model = int(alike[0])
        key_count = int(pairs.key_counts[model])
        if not (pairs.key_counts[alike] == key_count).all():
            alike = alike[pairs.key_counts[alike] == key_count]
        left[alike] = False
        members = _members(data, pairs, model, int(starts[model]), block)
        if members:
            shape = _Shape(block, pairs, members, alike, starts[alike], ends[alike])
            flat = _fitting(rows[alike], shape.columns(), shape.fits)
            if len(flat.rows):
                found.append(flat)
            left[alike[~shape.same_keys]] = True
            left[model] = False
    return found


def _members(data: bytes, pairs: Pairs, line: int, start: int, block: Block) -> list[Member]:
    """Return a line's keys with what is written around them; none where a name comes twice or none is wanted.

    A space may follow a colon or a comma. `start` is where the line begins.
    """
    members: list[Member] = []
    for key in pairs.keys_of(line):
        opened, closed = int(pairs.opens[key]), int(pairs.closes[key])
        name = data[opened + 1 : closed]
        gap = b" " if data[closed + 2] == _SPACE else b""
        lead = b"{" if not members else b", " if data[opened - 1] == _SPACE else b","
        members.append(Member(name, lead + b'"' + name + b'":' + gap, len(lead)))
    names = [member.name for member in members]
    return members if len(set(names)) == len(names) and block.has_any(names) else []


def _fitting(rows: Longs, columns: dict[str, pa.Array], fits: Mask) -> FlatRows:
    if fits.all():
        return FlatRows(rows, columns)
    flat = pa.array(fits)
    return FlatRows(rows[fits], {name: values.filter(flat) for name, values in columns.items()})


class _Shape:
    """Lines with as many keys as a model, whose keys and spaces are those of `members`.

    Attributes:
        fits: which lines are flat, and have these keys; final once the columns are there.
        same_keys: which lines have these keys, as far as was looked.
    """

    def __init__(
        self, block: Block, pairs: Pairs, members: list[Member], rows: Longs, starts: Longs, ends: Longs
    ) -> None:
        self._block, self._members, self._ends = block, members, ends
        count = len(rows)
        # by key and line: the number of the pair that encloses it; behind the last key, that of the next line
        self._keys = np.empty((len(members) + 1, count), np.int64)
        if count == len(pairs.key_counts):
            self._keys[:-1] = pairs.keys.reshape(count, len(members)).T
        else:
            at = pairs.first_keys[rows]
            for place in range(len(members)):
                self._keys[place] = pairs.keys[at + place]
        self._keys[-1] = pairs.ends[rows]
        self._opens = pairs.opens[self._keys[:-1]]
        self.fits = self._opens[0] == starts + 1
        self.same_keys = np.ones(count, bool)

    def columns(self) -> dict[str, pa.Array]:
        """Return the values of the wanted keys; those of lines that do not fit are anything."""
        places = []
        for place, member in enumerate(self._members):
            places.append(self._value_places(place, member))
            if not self.fits.any():
                return {}
        starts, ends, quoted = (np.stack(each) for each in zip(*places, strict=True))
        columns, flat = self._block.columns([each.name for each in self._members], starts, ends, quoted)
        self.fits &= flat
        return columns

    def _value_places(self, place: int, member: Member) -> tuple[Longs, Longs, Mask]:
        """Return where a key's values begin and end, quotes included, and which have quotes; those of lines
        that do not fit are empty."""
        text, fits = self._block.text, self.fits
        begins = self._opens[place] - member.before
        (same,) = self._block.are([member.written], begins.reshape(1, -1))
        self.same_keys &= same
        fits &= same
        starts = begins + len(member.written)
        if place + 1 < len(self._members):
            ends = self._opens[place + 1] - self._members[place + 1].before
        else:
            ends = self._ends - 1
        strings = self._keys[place + 1] - self._keys[place] - 1  # pairs of quotes behind that of the key
        least, most = int(strings.min()), int(strings.max())
        quoted = np.full(len(starts), least == 1) if least == most else strings == 1
        if most > 1:
            fits &= strings <= 1
        fits &= ends - starts > quoted
        if most:
            enclosed = (text.take(starts, mode="clip") == QUOTE) & (text.take(ends - 1, mode="clip") == QUOTE)
            fits &= enclosed if least else enclosed | ~quoted
        if not fits.all():
            starts, ends, quoted = np.where(fits, starts, 0), np.where(fits, ends, 0), quoted & fits
        return starts, ends, quoted
