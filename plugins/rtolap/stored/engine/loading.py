"""A transaction's rows on their way into files: collected in memory, merged, sorted, flushed by size."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import DefinitionError
from rtolap.columnar.chunks import single_chunk
from rtolap.model.stored.schema import StoredSchema
from rtolap.stored.engine.disk import Disk
from rtolap.stored.engine.files.writer import Compression, FileWriter
from rtolap.stored.engine.rows.columns import DELETE_SIGN, accept, file_column, with_signs
from rtolap.stored.engine.rows.partial_rows import merge_partial
from rtolap.stored.engine.rows.reduce import Merged, merged
from rtolap.stored.engine.rows.texts import one_type, plain_bytes, plain_schema
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.state import FileMeta
from rtolap.stored.engine.steps import file_name


class Memtable:
    """Rows in memory, which are bounded: `add_rows` until `is_full`, then `take_sorted`."""

    def __init__(self, schema: StoredSchema, bytes_max: int, *, partial: bool = False) -> None:
        self._schema, self._bytes_max, self._partial = schema, bytes_max, partial
        self._columns: set[str] | None = None  # that all partial rows have
        self._tables: list[pa.Table] = []
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def add_rows(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows, whose columns are taken by name. Raises DefinitionError as `accept` does, and for partial
        rows with other columns."""
        table = accept(batch, self._schema, partial=self._partial)
        if self._partial:
            self._check_columns(table)
        if table.num_rows:
            self._tables.append(table)
            self._bytes += plain_bytes(table)

    def is_full(self) -> bool:
        """Return whether the memtable is full. Rows of equal keys are merged first; a table that merges well
        stays in memory. Raises Refused as `merge` does."""
        if self._bytes < self._bytes_max:
            return False
        if self._schema.model == "duplicate" or self._partial:
            return True  # partial rows are merged once, from the order in which they came
        whole = self._merged().whole()
        self._tables, self._bytes = [whole], plain_bytes(whole)
        return self._bytes > self._bytes_max // 2

    def take_sorted(self) -> Merged | None:
        """Return everything, sorted and merged, in file columns; None when there is nothing."""
        if not self._tables:
            return None
        taken = self._merged()
        self._tables, self._bytes = [], 0
        return taken

    def _merged(self) -> Merged:
        is_single = len(self._tables) == 1
        whole = self._tables[0] if is_single else _together(self._tables).combine_chunks()
        if self._partial:
            return Merged(merge_partial(whole, self._schema), None)
        return merged(whole, self._schema)

    def _check_columns(self, table: pa.Table) -> None:
        names = set(table.column_names) - {DELETE_SIGN}
        if self._columns is None:
            self._columns = names
        elif names != self._columns:
            raise DefinitionError(
                "partial rows of one load have different columns",
                expected=f"{len(self._columns)} columns",
                found=f"others in {sorted(names ^ self._columns)}",
            )


class FileLoader:
    """Flushes into `<folder>/<i>.rows`. OSError as the disk raises it."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        schema: StoredSchema,
        settings: TabletSettings,
        *,
        partial: bool = False,
    ) -> None:
        self._disk, self._folder, self._schema, self._settings = disk, folder, schema, settings
        self._memtable = Memtable(schema, settings.memtable_bytes_max, partial=partial)
        self._files: list[FileMeta] = []

    @property
    def memory_bytes(self) -> int:
        return self._memtable.bytes

    def add_rows(self, batch: pa.RecordBatch | pa.Table) -> None:
        self._memtable.add_rows(batch)
        if self._memtable.is_full():
            self.flush()

    def finish(self) -> tuple[FileMeta, ...]:
        self.flush()
        return tuple(self._files)

    def flush(self) -> None:
        """Write the rows in memory to a file."""
        taken = self._memtable.take_sorted()
        if taken is None:
            return
        name = file_name(len(self._files))
        taken = without_idle_signs(taken)
        rows_at_once = self._settings.block_rows
        meta = write_rows(
            self._disk,
            self._folder / name,
            plain_schema(taken.table.schema),
            self._schema,
            self._settings.load_compression,
            rows_at_once,
            taken.pieces(rows_at_once),
        )
        self._files.append(meta)


def write_rows(
    disk: Disk,
    path: Path,
    columns: pa.Schema,
    schema: StoredSchema,
    compression: Compression | None,
    block_rows: int,
    tables: Iterable[pa.Table],
) -> FileMeta:
    """Write sorted rows to a file, durably but for its name. OSError as the disk raises it."""
    writer = FileWriter(
        disk,
        path,
        columns,
        tuple(file_column(column_id) for column_id in schema.keys),
        with_hashes=schema.model == "unique",
        compression=compression,
        block_rows=block_rows,
    )
    try:
        for table in tables:
            writer.append(table)
        footer = writer.finish()
    finally:
        writer.close()
    return FileMeta(path.name, footer.rows, path.stat().st_size)


def without_idle_signs(rows: Merged) -> Merged:
    """Return the rows without delete signs if none is set."""
    if DELETE_SIGN not in rows.table.column_names:
        return rows
    signs = rows.table.column(DELETE_SIGN)
    chosen = signs if rows.rows is None else signs.take(pa.array(rows.rows))
    return rows if pc.any(chosen).as_py() else Merged(rows.table.drop_columns([DELETE_SIGN]), rows.rows)


def _together(tables: list[pa.Table]) -> pa.Table:
    """Put batches together, with and without delete signs or dictionaries."""
    if any(DELETE_SIGN in table.column_names for table in tables):
        tables = [with_signs(table) for table in tables]
    for place, name in enumerate(tables[0].column_names):
        columns = [table.column(name) for table in tables]
        if any(column.type != columns[0].type for column in columns):
            alike = one_type([single_chunk(column) for column in columns])
            tables = [
                table.set_column(place, name, column) for table, column in zip(tables, alike, strict=True)
            ]
    return pa.concat_tables(tables)
