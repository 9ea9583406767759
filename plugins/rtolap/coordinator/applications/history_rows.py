"""Samples of a history as rows of one structured array, the ring that holds them, and their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rtolap.metadata.records import UnitKey
from rtolap.watermark.snapshot import NEVER

HOSTS_KEPT = 5
UNITS_KEPT = 8
NOBODY = -1  # in a place for a name

Name = str | UnitKey
Rows = NDArray[np.void]


def row_kind(levels: int) -> np.dtype[np.void]:
    """The columns that `history` describes."""
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


def empty_rows(levels: int, size: int) -> Rows:
    """Nobody holds anything, and all watermarks are unknown."""
    rows = np.zeros(size, row_kind(levels))
    rows["global_ms"], rows["marks_ms"] = NEVER, NEVER
    rows["host"], rows["unit"] = NOBODY, NOBODY
    return rows


def for_levels(rows: Rows, before: Sequence[str], after: Sequence[str]) -> Rows:
    """Rows of these levels made of rows of those: levels of one name keep what is known of them."""
    converted = empty_rows(len(after), rows.size)
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

    def keep(self, kept: NDArray[np.int32]) -> None:
        """Only these, ascending; the i-th of them gets the index i."""
        self.names = [self.names[at] for at in kept.tolist()]
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
        """One row; of a ring that is empty there is none."""
        return self._room[self._cut : self._cut + 1]

    def ordered(self) -> Rows:
        """A copy, the oldest first."""
        cut = self._cut
        return np.concatenate([self.filled[cut:], self.filled[:cut]])
