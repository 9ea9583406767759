"""The seam between the decoder of events and the formats of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.events.classify import Problem

Places = NDArray[np.int64]
Flags = NDArray[np.bool_]
Problems = dict[int, Problem]


class RecordReader(Protocol):
    """The reader of one format, for the columns of one plan and for one thread."""

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """Return rows in input order and their places; `problems` gets the others.

        `places[i]`: of `records[i]`. A column stands at its path in the rows (`rows.at_path`), in the type as
        which its leaf is read, or that of its `moment`.

        Raises Unavailable where a schema is needed that cannot be fetched now: the same records may be read
        again.
        """


def chunks(records: Sequence[bytes], records_max: int, bytes_max: int) -> list[tuple[int, int]]:
    """Return ranges of the records that together are at most so many and so large; a larger one is alone."""
    ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
    ranges, first = [], 0
    while first < len(records):
        before = ends[first - 1] if first else 0
        fits = int(np.searchsorted(ends, before + bytes_max, side="right"))
        last = max(first + 1, min(first + records_max, fits, len(records)))
        ranges.append((first, last))
        first = last
    return ranges
