"""The partial rows of one read of history, merged as they come, within a bound of memory.

Rows are filtered and merged into the groups so far while they fit. Groups that take more than their share of
the bound are divided by a hash of their keys, and written to the disk as pieces of PARTS parts. At the end
each part is read back and merged by itself, and the result is a table on the disk.

A part that is larger than the bound is merged in several runs, so a group may have a row in each. That is
exact, because merging is associative; the engine merges what it is given anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.base.errors import OverBudget
from rtolap.columnar.key_hash import hash_keys
from rtolap.model.quantities import size_text
from rtolap.query.cubes.history_rows import CuboidRows, HistoryRows
from rtolap.query.cubes.merge import group_partials
from rtolap.query.memory_budget import HISTORY, Account
from rtolap.query.plan import CubeRead
from rtolap.query.spills.folder import Spills
from rtolap.query.spills.tables import SpilledParts, SpilledTable

RAW_ROWS = 1 << 20  # that wait until they are filtered
GROUPED_ROWS = 65_536  # that wait until they are grouped: a call costs as much as some thousands of rows
PARTS = 64
_PART_SHIFT = np.uint64(64 - 6)
_MERGE_COPIES = 2  # of the rows that are merged: what goes in, and what comes out
_SETTING = "RTOLAP_HISTORY_STATEMENT_BYTES_MAX"


class ReadRoom(NamedTuple):
    """The memory of one read of history.

    Attributes:
        account: where the statement's memory is reserved; others may have taken it.
        bytes_max: the bound of the read.
        spills: where more rows go; None: nowhere, the read is refused.
    """

    account: Account
    bytes_max: int
    spills: Spills | None


class HistoryPartials:
    """Partial rows that one thread adds. All methods raise OverBudget and TooLittleDisk.

    Attributes:
        spilled_bytes: the bytes that were written to the disk.
    """

    def __init__(self, read: CubeRead, rows: HistoryRows, room: ReadRoom) -> None:
        self._read = read
        self._rows = rows
        self._room = room
        # Rows are merged before they take more than this, so that the merge stays within the bound.
        self._rows_bytes_max = room.bytes_max // _MERGE_COPIES
        self._grouped = rows.empty
        self._ready: list[pa.Table] = []
        self._raw: list[pa.Table] = []
        self._ready_rows = self._raw_rows = self._rows_bytes = 0
        self._ready_groups = False  # the ready table is one, and has each group once
        self._parts: SpilledParts | None = None
        self.spilled_bytes = 0

    @property
    def bytes_max(self) -> int:
        """Return the bytes that a source may hold of its own before it adds its rows."""
        return self._rows_bytes_max // 2

    def add_rows(self, found: CuboidRows) -> None:
        """Add rows of a cuboid, filtered or not."""
        if found.is_filtered:
            self.add_table(found.table)
            return
        self._raw.append(found.table)
        self._raw_rows += found.table.num_rows
        self._rows_bytes += found.table.nbytes
        if self._raw_rows >= RAW_ROWS:
            self._filter()
        self._bound()

    def add_table(self, table: pa.Table, *, is_grouped: bool = False) -> None:
        """Add rows that pass the filter, in the columns of the read.

        Args:
            is_grouped: True if no two rows are of one group, or they cannot be merged.
        """
        if not table.num_rows:
            return
        self._ready_groups = is_grouped and not self._ready and not self._grouped.num_rows
        self._ready.append(table)
        self._ready_rows += table.num_rows
        self._rows_bytes += table.nbytes
        self._bound()

    def finish(self) -> pa.Table | SpilledTable:
        """Return all rows, one for each group unless its sums may overflow or its part exceeded the bound."""
        try:
            self._filter()
            if self._parts is None and self._ready_groups and len(self._ready) == 1:
                return self._ready[0].select(self._rows.empty.schema.names).cast(self._rows.empty.schema)
            self._group()
            if self._parts is None:
                return self._grouped
            self._spill()
            return self._merged_parts(self._parts)
        finally:
            self.drop()

    def drop(self) -> None:
        """Forget all rows: what they took is given back."""
        if self._parts is not None:
            self._parts.close()
        self._grouped, self._ready, self._raw, self._parts = self._rows.empty, [], [], None
        self._ready_rows = self._raw_rows = self._rows_bytes = 0
        self._room.account.reserve(HISTORY, 0)

    def _bound(self) -> None:
        is_many = self._ready_rows >= max(GROUPED_ROWS, self._grouped.num_rows)
        if self._rows_bytes > self._rows_bytes_max:
            self._filter()
            self._group()
        elif is_many and not self._rows.has_sketches:
            self._group()
        # Half, so that as many rows again find room before they have to be merged with these.
        if self._rows_bytes > self._rows_bytes_max // 2 and not self._ready and not self._raw:
            self._spill()
        try:
            self._reserve()
        except OverBudget:  # others have the memory
            if self._room.spills is None:
                raise
            self._filter()
            self._group()
            self._spill()
            self._reserve()

    def _reserve(self) -> None:
        self._room.account.reserve(HISTORY, self._rows_bytes)

    def _filter(self) -> None:
        if not self._raw:
            return
        filtered = self._rows.filtered(self._raw)
        self._rows_bytes += filtered.nbytes - sum(table.nbytes for table in self._raw)
        self._raw, self._raw_rows = [], 0
        self._ready_groups = False
        if filtered.num_rows:
            self._ready.append(filtered)
            self._ready_rows += filtered.num_rows

    def _group(self) -> None:
        if not self._ready:
            return
        table = pa.concat_tables([self._grouped, *self._ready])
        self._ready, self._ready_rows = [], 0
        self._grouped = group_partials(self._read, table)
        self._rows_bytes = self._grouped.nbytes

    def _spill(self) -> None:
        """Write the groups to the disk."""
        if not self._grouped.num_rows:
            return
        if self._room.spills is None:
            raise OverBudget(
                "the groups of a read of history do not fit into the memory of the statement",
                expected=f"at most {size_text(self._room.bytes_max)}, {_SETTING}",
                found=f"{size_text(self._rows_bytes)} to merge, and no folder to spill to",
                action=f"set RTOLAP_QUERY_SPILL_FOLDER, raise {_SETTING}, SET rtolap_engine = spark, or "
                "group by fewer columns",
            )
        if self._parts is None:
            self._parts = SpilledParts(self._room.spills, self._rows.empty.schema)
        before = self._parts.written_bytes
        for part, table in _divided(self._grouped, self._read.dimensions):
            self._parts.write(part, table)
        self.spilled_bytes += self._parts.written_bytes - before
        self._grouped, self._rows_bytes = self._rows.empty, 0

    def _merged_parts(self, parts: SpilledParts) -> SpilledTable:
        assert self._room.spills is not None, "it has spilled"
        merged = SpilledTable(self._room.spills, self._rows.empty.schema)
        try:
            self._merge_parts(parts, merged)
        except BaseException:
            merged.close()
            raise
        self.spilled_bytes += merged.size_bytes
        return merged

    def _merge_parts(self, parts: SpilledParts, merged: SpilledTable) -> None:
        for tables in parts.read(self._rows_bytes_max):
            table = pa.concat_tables(tables)
            try:
                self._room.account.reserve(HISTORY, table.nbytes)
            except OverBudget:  # others have the memory: the rows stay as they are, for the engine to merge
                merged.write(table)
            else:
                merged.write(group_partials(self._read, table))


def _divided(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each part that has some."""
    if not names:
        yield 0, table
        return
    hashes = hash_keys([table.column(name) for name in names], table.num_rows)
    parts = (hashes >> _PART_SHIFT).astype(np.int64)
    order = np.argsort(parts, kind="stable")
    ordered = table.take(pa.array(order))
    starts = np.searchsorted(parts[order], np.arange(PARTS + 1))
    for part in range(PARTS):
        if starts[part] < starts[part + 1]:
            yield part, ordered.slice(starts[part], starts[part + 1] - starts[part])
