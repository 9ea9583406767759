"""The rows of history that one read needs, out of the Parquet files of one cuboid after the other.

Columns of small files are cached in decoded form, strings as dictionaries: a published file never changes,
and a statement over many segments would otherwise spend its time on opening files. In large files, statistics
rule rows out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.filter import mask
from rtolap.columnar.schema import physical_schema, select_partials
from rtolap.model.predicate import columns_of
from rtolap.query.cubes.arrow_filter import arrow_filter
from rtolap.query.cubes.byte_bounded import ByteBounded
from rtolap.query.cubes.history_files import HistoryFile, ParquetFooters
from rtolap.query.cubes.merge import group_partials
from rtolap.query.plan import CubeRead

SKETCH_ROWS = 8_192  # read at a time where sketches are among the columns
SMALL_ROWS = 65_536  # of a file whose columns are read whole
PIECE_ROWS = 131_072  # of a large file that are decoded together
PIECES_AHEAD, FILES_AHEAD = 4, 2  # that are decoded beside the one that is merged
COLUMN_BYTES_MAX = 64 << 20  # of decoded columns in the cache
STATISTICS_BYTES_MAX = 4 << 20  # of what is known about rows that statistics rule out
_STATISTIC_BYTES = 200  # of one such number with its key


class FileColumns:
    """Decoded columns of small files, and how many rows of a file its statistics leave of a filter.
    Thread-safe."""

    def __init__(self, footers: ParquetFooters, bytes_max: int = COLUMN_BYTES_MAX) -> None:
        self._footers = footers
        self._columns: ByteBounded[pa.Array[Any]] = ByteBounded(bytes_max)
        self._candidate_rows: ByteBounded[int] = ByteBounded(STATISTICS_BYTES_MAX)
        self._ruled_out: ByteBounded[frozenset[str]] = ByteBounded(STATISTICS_BYTES_MAX)

    def table(self, file: HistoryFile, schema: pa.Schema) -> pa.Table:
        """Return all rows of the file. Raises OSError and pyarrow.ArrowException."""
        found = {name: self._columns.find(f"{file.path}\0{name}") for name in schema.names}
        missing = [schema.field(name) for name, column in found.items() if column is None]
        if missing:
            read = self._footers.read(file, pa.schema(missing), use_threads=False)
            found |= {name: single_chunk(read.column(name)) for name in read.column_names}
            for field in missing:
                column = found[field.name]
                assert column is not None, "it was read"
                self._columns.keep(f"{file.path}\0{field.name}", column, column.nbytes)
        return pa.table([found[name] for name in schema.names], schema)

    def ruled_out(self, name: str) -> frozenset[str]:
        """Return the files that are known to have no row that passes the filter of this name."""
        return self._ruled_out.find(name) or frozenset()

    def keep_ruled_out(self, name: str, files: frozenset[str]) -> None:
        self._ruled_out.keep(name, files, len(name) + _STATISTIC_BYTES * (1 + len(files)))

    def candidate_rows(
        self, file: HistoryFile, condition: ds.Expression | None, name: str, schema: pa.Schema
    ) -> int:
        """Count the rows that statistics do not rule out.

        Args:
            name: name of the condition; equal conditions have the same.
        """
        key = f"{file.path}\0{name}"
        known = self._candidate_rows.find(key)
        if known is not None:
            return known
        fragment = self._footers.footer(file).fragment
        chosen = fragment if condition is None else fragment.subset(condition, schema=schema)
        candidate_rows: int = sum(group.num_rows for group in chosen.row_groups)
        self._candidate_rows.keep(key, candidate_rows, len(key) + _STATISTIC_BYTES)
        return candidate_rows


class CuboidRows(NamedTuple):
    """Some rows of one cuboid.

    Attributes:
        is_filtered: True if these rows pass the read's filter and have its columns alone.
    """

    table: pa.Table
    is_filtered: bool


class HistoryRows:
    """A read of rows from files. Everything that opens files raises OSError and pyarrow.ArrowException.

    No more rows are in memory than those of some pieces, and of the cached columns of small files.
    """

    def __init__(self, read: CubeRead, footers: ParquetFooters, columns: FileColumns) -> None:
        self._read = read
        self._footers = footers
        self._columns = columns
        self.needed = frozenset((*read.dimensions, *columns_of(read.filter)))
        self._names = (*read.dimensions, *sorted(self.needed - set(read.dimensions)))
        self._partials = (*read.dimensions, *read.partials)
        self._condition_name = msgspec.json.encode(read.filter).decode()
        self.has_sketches = any(
            partial.accumulator.sketch_bytes for partial in select_partials(read.schema, read.partials)
        )
        self.empty = read.columns.empty_table()

    @cached_property
    def _schema(self) -> pa.Schema:
        """The schema of the columns as the files have them. It is not computed if all files are in memory."""
        return physical_schema(self._read.schema, self._names, self._read.partials, plain=True)

    @cached_property
    def _local(self) -> pa.Schema:
        return physical_schema(self._read.schema, self._names, self._read.partials, plain=False)

    @cached_property
    def _condition(self) -> ds.Expression | None:
        return None if self._read.filter is None else arrow_filter(self._read.filter, self._read.schema)

    @property
    def choice_key(self) -> str:
        """A key that is equal for reads of the same cuboids."""
        return "\0".join((self._read.cube, *sorted(self.needed)))

    def candidate_rows(self, files: Sequence[HistoryFile]) -> int:
        return sum(self.file_candidate_rows(file) for file in files)

    def pieces(self, files: Sequence[HistoryFile]) -> Iterator[CuboidRows]:
        """Yield the rows that statistics do not rule out, piece by piece, in the order of the files."""
        left = [file for file in files if self.file_candidate_rows(file)]
        if self.has_sketches:
            for batch in self._batches(left, SKETCH_ROWS, readahead=1):
                yield CuboidRows(group_partials(self._read, pa.Table.from_batches([batch])), True)
        elif all(self._is_small(file) for file in left):
            for file in left:
                yield CuboidRows(self._columns.table(file, self._local), False)
        else:
            for batch in self._batches(left, PIECE_ROWS, readahead=PIECES_AHEAD):
                if batch.num_rows:
                    yield CuboidRows(pa.Table.from_batches([batch]), True)

    def filtered(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Filter the rows of several cuboids together, which is cheaper than one by one."""
        if not tables:
            return self.empty
        table = pa.concat_tables(tables)
        if self._read.filter is not None:
            table = table.filter(mask(table, self._read.filter))
        return table.select([*self._partials]).cast(self.empty.schema)

    def file_candidate_rows(self, file: HistoryFile) -> int:
        """Count its rows that statistics do not rule out."""
        return self._columns.candidate_rows(file, self._condition, self._condition_name, self._schema)

    def ruled_out(self) -> set[str]:
        """Return names in memory of files that are known to have no row that passes the filter."""
        return set(self._columns.ruled_out(self._condition_name))

    def keep_ruled_out(self, files: set[str]) -> None:
        self._columns.keep_ruled_out(self._condition_name, frozenset(files))

    def rows_if_whole(self, file: HistoryFile) -> int | None:
        """Return the file's rows if it has every column; None: a data set fills in what is missing."""
        footer = self._footers.footer(file)
        return footer.rows if footer.columns.issuperset(self._schema.names) else None

    def _is_small(self, file: HistoryFile) -> bool:
        rows = self.rows_if_whole(file)
        return rows is not None and rows <= SMALL_ROWS

    def _dataset(self, files: Sequence[HistoryFile]) -> ds.FileSystemDataset:
        fragments = []
        for file in files:
            fragment = self._footers.footer(file).fragment
            if self._condition is not None:
                fragment = fragment.subset(self._condition, schema=self._schema)
            file.compare([group.id for group in fragment.row_groups])
            fragments.append(fragment)
        return self._footers.dataset(fragments, self._schema)

    def _batches(
        self, files: Sequence[HistoryFile], rows: int, *, readahead: int
    ) -> Iterator[pa.RecordBatch]:
        if not files:
            return iter(())
        batches: Iterator[pa.RecordBatch] = self._dataset(files).to_batches(
            columns=[*self._partials],
            filter=self._condition,
            batch_size=rows,
            batch_readahead=readahead,
            fragment_readahead=1 if readahead == 1 else FILES_AHEAD,
            use_threads=readahead > 1,
        )
        return batches
