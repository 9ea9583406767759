"""Remembers which region delivered a part of a table last, to tell late edits of split or merged regions.

Sequence ids are comparable between regions that share a row, and between no others: the daughters of a split
and the region of a merge begin above what they came from. Which rows a region has HBase does not ship, so
what is known are the first and the last row that were delivered of it. All rows between them are its own. An
event is behind where its row lies between those of a region with a higher delivered id.

    rows                  a ············· m ············· z
    delivered of parent   ├──────────────────────────────┤       highest id  90
    of its daughters         ├────────┤       ├────────┤                    120 and 97
    kept                  ├─┤├────────┤├─────┤├────────┤├┤       of each row its last region

Ids begin again where a table is made again under its name, or restored from a snapshot: an edit that was
written after all that was delivered of a region is not behind it, give or take how far clocks are apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

ROW_BYTES_MAX = 256  # of a row so many count: rows that are alike in them are taken for one
# HBase's master takes no region server whose clock is more than 30 s from its own: its setting
# hbase.master.maxclockskew.
CLOCKS_APART_MS = 60_000


@dataclass(eq=False, slots=True)
class DeliveredRegion:
    """The delivery of a region.

    Attributes:
        first: the first delivered row.
        end: the key behind the last delivered row.
        highest: the highest delivered id; -1 before the first.
        newest_write_ms: the newest write time that was delivered; -1 before the first.
        is_shown: True if the ranges showed all of its rows when they were last computed.
    """

    table: str = ""
    first: bytes = b""
    end: bytes = b""
    highest: int = -1
    newest_write_ms: int = -1
    is_shown: bool = False  # all of its rows, when they were shown last

    @property
    def last(self) -> bytes:
        return self.end[:-1]


class _Range(NamedTuple):
    first: bytes
    end: bytes
    region: DeliveredRegion


@dataclass(slots=True)
class _Table:
    """The ranges of a table: at most two for each region, and one more.

    Attributes:
        firsts: the first row of each range, ascending.
        ranges: the ranges, disjoint and ascending.
    """

    firsts: list[bytes] = field(default_factory=list)
    ranges: list[_Range] = field(default_factory=list)

    def overlapping(self, first: bytes, end: bytes) -> slice:
        low = bisect_right(self.firsts, first) - 1
        if low < 0 or self.ranges[low].end <= first:
            low += 1
        return slice(low, max(low, bisect_left(self.firsts, end)))

    def replace(self, places: slice, ranges: list[_Range]) -> None:
        self.ranges[places] = ranges
        self.firsts[places] = [each.first for each in ranges]


class RowRanges:
    """The region with the highest delivered id for each row. Not thread-safe."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}

    def __len__(self) -> int:
        return sum(len(table.ranges) for table in self._tables.values())

    def behind(
        self, table: str, own: DeliveredRegion | None, rows: pa.BinaryArray, ids: I64, write_ms: I64
    ) -> Mask:
        """Return which events of one region are older than what another region has delivered of their rows.
        `own`: what was delivered of theirs."""
        behind = np.zeros(len(ids), bool)
        known = self._tables.get(table)
        if known is None or (len(known.ranges) == 1 and known.ranges[0].region is own):
            return behind
        rows = _counted(rows)
        first, last = first_and_last(rows)
        lowest = int(ids.min())
        for at in known.ranges[known.overlapping(first, _after(last))]:
            if at.region is own or at.region.highest <= lowest:
                continue
            within = pc.and_(pc.greater_equal(rows, _scalar(at.first)), pc.less(rows, _scalar(at.end)))
            older = (ids < at.region.highest) & (write_ms <= at.region.newest_write_ms + CLOCKS_APART_MS)
            behind |= older & within.to_numpy(zero_copy_only=False)
        return behind

    def deliver(self, region: DeliveredRegion, first: bytes, last: bytes) -> None:
        """Note that rows from `first` to `last` were delivered of the region; its ids and times are up to
        date."""
        first, end = first[:ROW_BYTES_MAX], _after(last[:ROW_BYTES_MAX])
        if region.end:
            first, end = min(first, region.first), max(end, region.end)
        if (first, end) == (region.first, region.end) and region.is_shown:
            return
        region.first, region.end = first, end
        table = self._tables.setdefault(region.table, _Table())
        places = table.overlapping(first, end)
        shown, rest = [], []
        begin, region.is_shown = first, True
        for each in table.ranges[places]:
            if each.region is region:
                continue
            if _is_behind(region, each.region):
                if begin < each.first:
                    shown.append(_Range(begin, each.first, region))
                shown.append(each)
                begin, region.is_shown = each.end, False
                continue
            if each.first < first:
                shown.append(_Range(each.first, first, each.region))
            if each.end > end:
                rest.append(_Range(end, each.end, each.region))
        if begin < end:
            shown.append(_Range(begin, end, region))
        table.replace(places, shown + rest)

    def forget(self, region: DeliveredRegion) -> None:
        """Forget a region. Ranges behind it are not shown again."""
        table = self._tables.get(region.table)
        if table is None:
            return
        places = table.overlapping(region.first, region.end)
        table.replace(places, [each for each in table.ranges[places] if each.region is not region])
        if not table.ranges:
            del self._tables[region.table]


def first_and_last(rows: pa.BinaryArray) -> tuple[bytes, bytes]:
    """Return the smallest and the largest of one row or more."""
    both = pc.min_max(rows)
    return both["min"].as_py(), both["max"].as_py()


def _is_behind(region: DeliveredRegion, other: DeliveredRegion) -> bool:
    return (
        region.highest < other.highest and region.newest_write_ms <= other.newest_write_ms + CLOCKS_APART_MS
    )


def _counted(rows: pa.BinaryArray) -> pa.BinaryArray:
    if pc.max(pc.binary_length(rows)).as_py() <= ROW_BYTES_MAX:
        return rows
    return pc.binary_slice(rows, 0, ROW_BYTES_MAX)


def _after(row: bytes) -> bytes:
    """Return the next row that there can be."""
    return row + b"\0"


def _scalar(row: bytes) -> pa.BinaryScalar:
    return pa.scalar(row, pa.binary())
