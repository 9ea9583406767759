"""The rows of one segment's cuboid that a statement needs, out of its Parquet files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from rtolap.columnar.filter import mask
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.model.predicate import columns_of
from rtolap.query.cubes.arrow_filter import arrow_filter
from rtolap.query.cubes.history_footers import Footers, HistoryFile
from rtolap.query.cubes.merge import group_partials
from rtolap.query.plan import CubeRead

SKETCH_ROWS = 8_192  # read at a time where sketches are among the columns
FEW_ROWS = 65_536  # that are read whole and then filtered: a scan costs a millisecond before its first row


def has_sketches(read: CubeRead) -> bool:
    return any(partial.op == "hll" for partial in select_partials(read.schema, read.partials))


class SegmentRows:
    """`kept`: how many rows statistics do not rule out. Raises OSError and pyarrow.ArrowException."""

    def __init__(self, read: CubeRead, footers: Footers, files: Sequence[HistoryFile]) -> None:
        self._read = read
        self._footers = footers
        self._files = files
        self._needed = (*read.dimensions, *sorted(columns_of(read.filter) - set(read.dimensions)))
        self._schema = physical_schema(read.schema, self._needed, read.partials, plain=True)
        self._condition = None if read.filter is None else arrow_filter(read.filter, read.schema)
        self._fragments = [self._chosen(footers.fragment(file)) for file in files]
        self.kept = sum(group.num_rows for each in self._fragments for group in each.row_groups)

    def read(self) -> pa.Table:
        """The rows that pass the filter; where there are sketches, grouped already."""
        if has_sketches(self._read):
            return self._grouped_in_pieces()
        columns = [*self._read.dimensions, *self._read.partials]
        if self.kept <= FEW_ROWS and all(self._is_plain(number) for number in range(len(self._files))):
            return self._few_rows(columns)
        return self._dataset().to_table(columns=columns, filter=self._condition, use_threads=True)

    def _chosen(self, fragment: ds.ParquetFileFragment) -> ds.ParquetFileFragment:
        if self._condition is None:
            return fragment
        return fragment.subset(self._condition, schema=self._schema)

    def _is_plain(self, number: int) -> bool:
        """Return True for a file on a disk that has every column: elsewhere a data set saves requests, and
        fills in what is missing."""
        names = set(self._fragments[number].metadata.schema.names)
        return isinstance(self._files[number].filesystem, fs.LocalFileSystem) and names >= {
            *self._schema.names
        }

    def _few_rows(self, columns: list[str]) -> pa.Table:
        tables = [self._schema.empty_table()]
        for file, fragment in zip(self._files, self._fragments, strict=True):
            groups = [group.id for group in fragment.row_groups if group.num_rows]
            if groups:
                with pq.ParquetFile(file.path, metadata=fragment.metadata) as source:
                    table = source.read_row_groups(groups, self._schema.names, use_threads=False)
                tables.append(table.select(self._schema.names).cast(self._schema))
        table = pa.concat_tables(tables)
        if self._read.filter is not None:
            table = table.filter(mask(table, self._read.filter))
        return table.select(columns)

    def _dataset(self) -> ds.FileSystemDataset:
        kept = [each for each in self._fragments if any(group.num_rows for group in each.row_groups)]
        return self._footers.dataset(kept, self._schema)

    def _grouped_in_pieces(self) -> pa.Table:
        """Sketches are kilobytes each: no more of them is held than a piece and what was grouped so far."""
        read = self._read
        grouped = physical_schema(read.schema, read.dimensions, read.partials, plain=True).empty_table()
        batches = self._dataset().to_batches(
            columns=[*read.dimensions, *read.partials],
            filter=self._condition,
            batch_size=SKETCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        pending: list[pa.Table] = []
        rows = 0
        for batch in batches:
            pending.append(group_partials(read, pa.Table.from_batches([batch])))
            rows += pending[-1].num_rows
            if rows >= max(SKETCH_ROWS, grouped.num_rows):  # so that regrouping costs no more than reading
                grouped, pending, rows = group_partials(read, pa.concat_tables([grouped, *pending])), [], 0
        return group_partials(read, pa.concat_tables([grouped, *pending]))
