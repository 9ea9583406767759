"""The history of an application's watermarks and of their holders: columnar, bounded, in its owner's memory.

A sample a second is kept for an hour, and one in 30 s for a day; both rings are shorter where an application
has so many levels that a sample is large: `BYTES_MAX` holds for the rings of one application. Names of hosts
and units come on top, at most one for each place in a ring; those that are in no ring are forgotten. Nothing
is persisted: a new owner starts over, and every answer says since when it remembers.

A sample is one row:

    number, at_ms         int64             which it is, and when
    global_ms             int64             the global low watermark
    marks_ms              int64 [level, 2]  input, output
    holding               int32 [level]     hosts at or before the input watermark; 0 where there are no hosts
    host, host_ms         [level, HOSTS_KEPT]   those that hold it most, and what they have been read up to
    unit, unit_ms         [level, UNITS_KEPT]   the units with the oldest work, and that work

A name is an index into `Names`, −1 an empty place; NEVER stands for what is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.metadata.records import UnitKey
from rtolap.watermark.snapshot import NEVER
from rtolap.watermark.topology import Marks

HOSTS_KEPT = 5
UNITS_KEPT = 8
NOBODY = -1  # in a place for a name

Name = str | UnitKey
Rows = NDArray[np.void]

FINE_ROWS = 3600
COARSE_ROWS = 2880
COARSE_STEP_MS = 30_000
BYTES_MAX = 32 * 1024 * 1024
_NAMES_FREE = 1024  # names below which forgotten ones are not looked for

Holder = tuple[Name, int]


def _row_kind(levels: int) -> np.dtype[np.void]:
    """Return the columns of a sample, as the module describes them."""
    return np.dtype(
        [
            ("number", "<i8"),
            ("at_ms", "<i8"),
            ("global_ms", "<i8"),
            ("marks_ms", "<i8", (levels, 2)),
            ("holding", "<i4", (levels,)),
            ("host", "<i4", (levels, HOSTS_KEPT)),
            ("host_ms", "<i8", (levels, HOSTS_KEPT)),
            ("unit", "<i4", (levels, UNITS_KEPT)),
            ("unit_ms", "<i8", (levels, UNITS_KEPT)),
        ]
    )


def _empty_rows(levels: int, size: int) -> Rows:
    """Return rows in which nobody holds anything and all watermarks are unknown."""
    rows = np.zeros(size, _row_kind(levels))
    rows["global_ms"], rows["marks_ms"] = NEVER, NEVER
    rows["host"], rows["unit"] = NOBODY, NOBODY
    return rows


def _for_levels(rows: Rows, before: Sequence[str], after: Sequence[str]) -> Rows:
    """Return rows of the new levels made of rows of the old: levels of the same name keep their values."""
    converted = _empty_rows(len(after), rows.size)
    for column in ("number", "at_ms", "global_ms"):
        converted[column] = rows[column]
    for at, level in enumerate(after):
        if level in before:
            for column in ("marks_ms", "holding", "host", "host_ms", "unit", "unit_ms"):
                converted[column][:, at] = rows[column][:, before.index(level)]
    return converted


class Names:
    """Name ↔ index. `keep` renumbers."""

    def __init__(self) -> None:
        self.names: list[Name] = []
        self._index: dict[Name, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: Name) -> int:
        place = self._index.setdefault(name, len(self.names))
        if place == len(self.names):
            self.names.append(name)
        return place

    def keep(self, retained: NDArray[np.int32]) -> None:
        """Keep only these indices, ascending; the i-th of them gets the index i."""
        self.names = [self.names[at] for at in retained.tolist()]
        self._index = {name: at for at, name in enumerate(self.names)}


class Ring:
    """The last rows, in a room that is touched only as it fills."""

    def __init__(self, kind: np.dtype[np.void], size: int) -> None:
        self._room: Rows = np.empty(size, kind)
        self._written = 0

    @property
    def nbytes(self) -> int:
        return self._room.nbytes

    def extend(self, rows: Rows) -> None:
        """Append the rows; of more than there is room for, the last."""
        rows = rows[-self._room.size :]
        at = (self._written + np.arange(rows.size)) % self._room.size
        self._room[at] = rows
        self._written += rows.size

    @property
    def filled(self) -> Rows:
        """A view, in no order."""
        return self._room[: min(self._written, self._room.size)]

    @property
    def _cut(self) -> int:
        return self._written % self._room.size if self._written > self._room.size else 0

    @property
    def oldest(self) -> Rows:
        """Return the oldest row; of a ring that is empty there is none."""
        return self._room[self._cut : self._cut + 1]

    def ordered(self) -> Rows:
        """Return a copy, the oldest first."""
        cut = self._cut
        return np.concatenate([self.filled[cut:], self.filled[:cut]])


@dataclass(frozen=True, slots=True)
class Sample:
    """The holders of an application at one moment.

    Attributes:
        hosts: source → (host, progress), who holds it most first.
        units: level → (unit, oldest work).
    """

    at_ms: int
    marks: Marks
    holding: Mapping[str, int] = field(default_factory=dict)
    hosts: Mapping[str, Sequence[Holder]] = field(default_factory=dict)
    units: Mapping[str, Sequence[Holder]] = field(default_factory=dict)


class History:
    """The history of one application. The caller locks."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        self.names = Names()
        kind = _row_kind(len(self.levels))
        share = min(1.0, BYTES_MAX / (kind.itemsize * (FINE_ROWS + COARSE_ROWS)))
        self._fine = Ring(kind, int(FINE_ROWS * share))
        self._coarse = Ring(kind, int(COARSE_ROWS * share))
        self._samples = 0
        self._coarse_step = -1
        self._names_looked_at = _NAMES_FREE

    def changed(self, levels: Sequence[str]) -> History:
        """Return the history of the same application with other levels: those of one name go on."""
        after = History(levels)
        for ring, grown in ((self._fine, after._fine), (self._coarse, after._coarse)):
            grown.extend(_for_levels(ring.ordered(), self.levels, after.levels))
        after.names, after._names_looked_at = self.names, self._names_looked_at
        after._samples, after._coarse_step = self._samples, self._coarse_step
        return after

    @property
    def bytes_max(self) -> int:
        """Return the bytes that the rings take once they are full."""
        return self._fine.nbytes + self._coarse.nbytes

    def record(self, sample: Sample) -> None:
        row = self._row(sample)
        self._samples += 1
        self._fine.extend(row)
        if sample.at_ms // COARSE_STEP_MS != self._coarse_step:
            self._coarse_step = sample.at_ms // COARSE_STEP_MS
            self._coarse.extend(row)
        if len(self.names) > self._names_looked_at:
            self._forget_names()

    @property
    def oldest_ms(self) -> int | None:
        """Return when the oldest sample that is still kept was taken."""
        oldest = [int(ring.oldest["at_ms"][0]) for ring in (self._fine, self._coarse) if ring.filled.size]
        return min(oldest, default=None)

    def rows(self, since_ms: int, until_ms: int, rows_max: int) -> Rows:
        """Return a copy of the samples in `[since_ms, until_ms]`, oldest first; of more than `rows_max` the
        last in each of so many equal spans of time.
        """
        fine, coarse = self._fine.ordered(), self._coarse.ordered()
        if fine.size:
            coarse = coarse[coarse["number"] < fine["number"][0]]
        sampled = np.concatenate([coarse, fine])
        sampled = sampled[(sampled["at_ms"] >= since_ms) & (sampled["at_ms"] <= until_ms)]
        if sampled.size <= rows_max:
            return sampled
        at_ms = sampled["at_ms"]
        span = (at_ms - at_ms.min()) * rows_max // (at_ms.max() - at_ms.min() + 1)
        _, from_the_end = np.unique(span[::-1], return_index=True)
        return sampled[np.sort(sampled.size - 1 - from_the_end)]

    def _row(self, sample: Sample) -> Rows:
        [row] = rows = _empty_rows(len(self.levels), 1)
        row["number"], row["at_ms"] = self._samples, sample.at_ms
        row["global_ms"] = _ms(sample.marks.global_ms)
        for at, level in enumerate(self.levels):
            marks = sample.marks.levels.get(level)
            if marks is not None:
                row["marks_ms"][at] = _ms(marks.input_ms), _ms(marks.output_ms)
            row["holding"][at] = sample.holding.get(level, 0)
            for kind, holders in (("host", sample.hosts), ("unit", sample.units)):
                places = holders.get(level, ())[: row[kind].shape[1]]
                row[kind][at, : len(places)] = [self.names.index(name) for name, _ in places]
                row[kind + "_ms"][at, : len(places)] = [instant_ms for _, instant_ms in places]
        return rows

    def _forget_names(self) -> None:
        """Forget names without history. The search runs whenever there are twice as many names as the last
        one left."""
        rings = [ring.filled[kind] for ring in (self._fine, self._coarse) for kind in ("host", "unit")]
        used = np.unique(np.concatenate([places[places != NOBODY] for places in rings]))
        renumbered = np.full(
            len(self.names) + 1, NOBODY, np.int32
        )  # the last entry is that of an empty place
        renumbered[used] = np.arange(used.size)
        for places in rings:
            places[...] = renumbered[places]
        self.names.keep(used)
        self._names_looked_at = max(2 * len(self.names), _NAMES_FREE)


def _ms(instant_ms: int | None) -> int:
    return NEVER if instant_ms is None else instant_ms
