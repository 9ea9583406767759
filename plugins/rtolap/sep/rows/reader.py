"""Rows of HBase as they are now: what a mirrored row becomes when an edit says that it has changed.

HBase itself applies its rules there: timestamps, types of deletes, versions, lives of cells. A read has every
edit of the rows up to the sequence ids that it is given, see `hbase.regions`; newer ones may be in it too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, TooLarge, Unavailable
from rtolap.sep.events.cells import CellBlock, decode_cells
from rtolap.sep.events.edit_batch import CELLS_SCHEMA
from rtolap.sep.hbase.regions import Region, RegionClient, RowCells
from rtolap.sep.hbase.rows_pb2 import Column

log = logging.getLogger(__name__)

CALL_ROWS_MAX = 500
CALL_BYTES = 8 << 20  # aimed at: rows of a call are as many as fit by the size of those before
PART_ROWS_MAX = 10_000
PART_BYTES = 64 << 20
SCAN_ROWS = 1000
_FIRST_CALL_ROWS = 64
TRIES = 5
_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0
# A region whose read point stays below an id that it has shipped was taken back to an older snapshot.
READ_POINT_WAIT_S = 30.0
_LOOK_S, _LOOK_MAX_S = 0.002, 0.1

T = TypeVar("T")
FamilyColumns = Sequence[tuple[bytes, bytes]]
I64 = NDArray[np.int64]


class Families(Protocol):
    """The families that a table has now, by name; None where there is no such table."""

    def __call__(self, table: str) -> frozenset[bytes] | None: ...


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows that were read.

    Attributes:
        places: the places of the rows among the requested ones.
        cells: the cells, by CELLS_SCHEMA; `event` counts in `places`.
        counts: the number of cells of each row.
        exists: whether each row has any cell in the followed families.
    """

    places: I64
    cells: pa.RecordBatch
    counts: I64
    exists: NDArray[np.bool_]


class RowSource(Protocol):
    """Reads rows of a table as they are now."""

    def read(self, table: str, rows: Sequence[bytes], at_least: Mapping[str, int]) -> Iterator[ReadRows]:
        """Read distinct rows, in parts. `at_least`: by encoded region, the sequence id whose edit the read
        must have. Unavailable: not now."""

    def close(self) -> None: ...


class HBaseRowReader(Closeable):
    """A RowSource that reads a real HBase.

    Attributes:
        client: calls of the region servers; the reader closes it.

    Args:
        columns: the columns that are read.
        families_of: the families of each table.
        followed: the families that the subscription follows; all where it names none.
        tries: how often a region that is on its way is asked, with pauses that grow up to a second.
    """

    def __init__(
        self,
        client: RegionClient,
        families_of: Families,
        columns: FamilyColumns,
        followed: Callable[[str], Sequence[bytes]],
        *,
        tries: int = TRIES,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client = client
        self._families_of = families_of
        self._columns = tuple(columns)
        self._followed = followed
        self._tries = tries
        self._monotonic_s, self._sleep = monotonic_s, sleep
        self._lacking: dict[str, frozenset[bytes]] = {}  # tables that lack a declared family → what they have
        self._waited: dict[str, int] = {}  # regions that were taken back → the id that is not waited for
        self._call_rows = _FIRST_CALL_ROWS

    def close(self) -> None:
        self.client.close()

    def read(self, table: str, rows: Sequence[bytes], at_least: Mapping[str, int]) -> Iterator[ReadRows]:
        if table in self._lacking:  # the family may have been added since
            self._lacking[table] = self._families_of(table) or frozenset()
        left = sorted(range(len(rows)), key=rows.__getitem__)
        while left:
            part, left = left[:PART_ROWS_MAX], left[PART_ROWS_MAX:]
            yield from self._read_part(table, rows, part, at_least)

    def _read_part(
        self, table: str, rows: Sequence[bytes], part: list[int], at_least: Mapping[str, int]
    ) -> Iterator[ReadRows]:
        """Read a part of the rows. A part is cut where its cells become many."""
        taken, read, size = list[int](), list[RowCells](), 0
        checked: set[bytes] = set()
        while part:
            some = part[: self._call_rows]
            try:
                cells = self.retrying(table, lambda: self._get(table, rows, some, at_least, checked))  # noqa: B023
            except TooLarge:
                if len(some) == 1:
                    raise
                self._call_rows = max(1, len(some) // 2)
                continue
            part = part[len(some) :]
            taken += some
            read += cells
            size += sum(len(each.block) for each in cells)
            self._learn(len(some), sum(len(each.block) for each in cells))
            if size >= PART_BYTES:
                yield _joined(taken, read)
                taken, read, size = [], [], 0
        if taken:
            yield _joined(taken, read)

    def _learn(self, rows: int, size: int) -> None:
        fitting = CALL_BYTES * rows // max(size, 1)
        self._call_rows = max(1, min(CALL_ROWS_MAX, fitting, self._call_rows * 2))

    def _get(
        self,
        table: str,
        rows: Sequence[bytes],
        places: list[int],
        at_least: Mapping[str, int],
        checked: set[bytes],
    ) -> list[RowCells]:
        """Read the rows at these places, which ascend; in the answer `exists` is what it says."""
        runs: list[tuple[Region, list[bytes]]] = []
        for place in places:
            region = self.client.region_of(table, rows[place])
            if region is None:  # dropped, or truncated a moment ago: it has no rows
                return [RowCells([0] * len(places), b"", [False] * len(places))]
            if not runs or runs[-1][0] is not region:
                runs.append((region, []))
            runs[-1][1].append(rows[place])
        for region, of_region in runs:
            if region.name not in checked:
                self._wait_for_read_point(region, of_region[0], at_least.get(region.encoded, -1))
                checked.add(region.name)
        return [
            self._with_existence(table, server_runs, self._call(table, server_runs))
            for server_runs in _by_server(runs)
        ]

    def _call(self, table: str, runs: list[tuple[Region, list[bytes]]]) -> RowCells:
        wanted = _columns(self._columns, self._lacking.get(table))
        if wanted:
            return self.client.get(runs[0][0].server, runs, wanted)
        count = sum(len(of_region) for _, of_region in runs)  # an empty list would mean all columns
        return RowCells([0] * count, b"", [False] * count)

    def _with_existence(self, table: str, runs: list[tuple[Region, list[bytes]]], read: RowCells) -> RowCells:
        """Return the cells, with the existence of rows. A row without declared cells exists if it has
        others."""
        exists = [count > 0 for count in read.counts]
        if all(exists):
            return RowCells(read.counts, read.block, exists)
        flat = [(region, row) for region, of_region in runs for row in of_region]
        requested: list[tuple[Region, list[bytes]]] = []
        for (region, row), known in zip(flat, exists, strict=True):
            if known:
                continue
            if not requested or requested[-1][0] is not region:
                requested.append((region, []))
            requested[-1][1].append(row)
        families = self._existing_families(table)
        if families is None:
            return RowCells(read.counts, read.block, exists)
        found = iter(self.client.get(requested[0][0].server, requested, families, existence_only=True).exists)
        return RowCells(read.counts, read.block, [known or next(found) for known in exists])

    def _existing_families(self, table: str) -> list[Column] | None:
        """Return the followed families that the table has, as columns: none means all. None: it has none of
        them."""
        followed = list(self._followed(table))
        if not followed:
            return []
        lacking = self._lacking.get(table)
        known = [family for family in followed if lacking is None or family in lacking]
        return [Column(family=family) for family in known] or None

    def _wait_for_read_point(self, region: Region, row: bytes, sequence_id: int) -> None:
        """Wait for the read point of a region. Ids of other regions than the row's are those of parents, with
        whose edits its region began."""
        if sequence_id <= self._waited.get(region.encoded, -1):
            return
        deadline_s, pause_s = self._monotonic_s() + READ_POINT_WAIT_S, _LOOK_S
        while (found := self.client.read_point(region, row)) < sequence_id:
            if self._monotonic_s() > deadline_s:
                self._waited[region.encoded] = sequence_id
                log.warning(
                    "region %s is read at %d, though it has shipped edit %d: was its table restored?",
                    region.encoded, found, sequence_id,
                )  # fmt: skip
                return
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_MAX_S)

    def retrying(self, table: str, act: Callable[[], T]) -> T:
        """Do something with regions of the table, again while they are on their way: what was not served is
        looked up again. A declared family may be missing. Raises what the last try raises."""
        pause_s = _PAUSE_S
        for _ in range(self._tries):
            try:
                return act()
            except NotFound as error:
                self._look_up_families(table, error)
            except Unavailable:
                self.client.forget(table)
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return act()

    def _look_up_families(self, table: str, error: NotFound) -> None:
        families = self._families_of(table)
        if families is None:
            raise Unavailable(f"the table {table} is on its way", found=error) from error
        if families == self._lacking.get(table):
            raise error
        self._lacking[table] = families


def _columns(columns: FamilyColumns, families: frozenset[bytes] | None) -> list[Column]:
    """Return the columns by family, without families that the table lacks."""
    by_family: dict[bytes, Column] = {}
    for family, qualifier in columns:
        if families is None or family in families:
            by_family.setdefault(family, Column(family=family)).qualifier.append(qualifier)
    return list(by_family.values())


def _by_server(runs: list[tuple[Region, list[bytes]]]) -> Iterator[list[tuple[Region, list[bytes]]]]:
    """Yield neighbouring runs of one server; the order of rows stays."""
    some: list[tuple[Region, list[bytes]]] = []
    for run in runs:
        if some and some[-1][0].server != run[0].server:
            yield some
            some = []
        some.append(run)
    if some:
        yield some


def _joined(places: list[int], read: list[RowCells]) -> ReadRows:
    counts = np.array([count for each in read for count in each.counts], np.int64)
    block = decode_cells(b"".join(each.block for each in read))
    return ReadRows(
        np.array(places, np.int64),
        cells_of(block, counts),
        counts,
        np.array([known for each in read for known in each.exists], bool),
    )


def cells_of(block: CellBlock, counts: I64) -> pa.RecordBatch:
    """Return the cells of rows that have so many each, with CELLS_SCHEMA."""
    columns = [
        pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts)),
        block.families().dictionary_encode(),
        block.qualifiers(),
        pa.array(block.timestamp_ms),
        pa.array(block.type),
        block.values(),
        block.tags(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CELLS_SCHEMA)
