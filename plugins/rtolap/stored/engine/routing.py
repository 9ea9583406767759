"""Finds the tablet a row belongs to: its partition by time, its bucket by the hash of the bucket columns.

The hash is that of `rows.keys.hashes`: the same in every process and for ever, so that rows of equal keys
meet. A table without key columns spreads its rows by their place in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.schema import arrow_type
from rtolap.model.stored.partitions import PartitionRange, partition_of
from rtolap.model.stored.schema import SchemaColumn, StoredSchema, initial_schema
from rtolap.model.stored.table import PartitionUnit, StoredTable
from rtolap.stored.engine.rows.keys import Longs, hashes

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_CALENDAR_MS = (-719_162 * _DAY_MS, 2_932_532 * _DAY_MS)  # years 1 to 9998


class RoutedPart(NamedTuple):
    partition: str
    bucket: int
    rows: pa.RecordBatch


class RoutedBatch(NamedTuple):
    """The rows of a batch, by tablet.

    Attributes:
        parts: no two of the same tablet; rows of each in the order of the batch.
        unroutable: boolean, of each row: no partition has its time, or its time is null.
        beyond: unroutable rows whose time is past the calendar, for which no partition can be made.
        absent: partitions that are not there yet and would have some of these rows.
    """

    parts: tuple[RoutedPart, ...]
    unroutable: pa.BooleanArray
    beyond: pa.BooleanArray
    absent: tuple[PartitionRange, ...]


class Routing:
    """Routing of one table's rows, as it is at one moment. For several threads."""

    def __init__(
        self, definition: StoredTable, schema: StoredSchema, partitions: Sequence[PartitionRange]
    ) -> None:
        """Prepare for a table. `definition`: as it was created; `schema`: its columns as they are now, and
        those of the batches. Raises DefinitionError for a table without partitions."""
        if not partitions:
            raise DefinitionError(f"table {definition.qualified_name} has no partition to route to")
        # Columns are known by their ids: a rename changes neither partition nor bucket.
        first = initial_schema(definition)
        self._unit: PartitionUnit | None = None
        self._time: SchemaColumn | None = None
        if definition.partitions is not None:
            self._unit = definition.partitions.unit
            self._time = schema.by_id(first.named(definition.partitions.column).id)
        self._keys = [schema.by_id(first.named(name).id) for name in definition.bucket_columns]
        self._buckets = definition.buckets.count
        self._partitions = tuple(sorted(partitions))
        self._starts = np.array([part.start_ms for part in self._partitions], np.int64)
        self._ends = np.array([part.end_ms for part in self._partitions], np.int64)

    def split(self, batch: pa.RecordBatch) -> RoutedBatch:
        """Split a batch. Raises DefinitionError where it lacks a column that decides and has no default."""
        partition_numbers, unroutable, beyond, absent = self._partition(batch)
        buckets = self._bucket(batch)
        codes = partition_numbers * self._buckets + buckets
        rows: Longs | None = None
        if unroutable.any():
            rows = np.flatnonzero(~unroutable)
            codes = codes[rows]
        parts = tuple(self._parts(batch, codes, rows))
        return RoutedBatch(parts, pa.array(unroutable), pa.array(beyond), absent)

    def _parts(self, batch: pa.RecordBatch, codes: Longs, rows: Longs | None) -> list[RoutedPart]:
        if not len(codes):
            return []
        if (codes == codes[0]).all():
            return [self._part(int(codes[0]), batch if rows is None else batch.take(pa.array(rows)))]
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        sorted_batch = batch.take(pa.array(order if rows is None else rows[order]))
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        stops = np.append(starts[1:], len(ordered))
        return [
            self._part(int(ordered[start]), sorted_batch.slice(start, stop - start))
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]

    def _part(self, code: int, rows: pa.RecordBatch) -> RoutedPart:
        partition, bucket = divmod(code, self._buckets)
        return RoutedPart(self._partitions[partition].name, bucket, rows)

    def _partition(
        self, batch: pa.RecordBatch
    ) -> tuple[Longs, NDArray[np.bool_], NDArray[np.bool_], tuple[PartitionRange, ...]]:
        rows = batch.num_rows
        if self._time is None or self._unit is None:
            none = np.zeros(rows, np.bool_)
            return np.zeros(rows, np.int64), none, none, ()
        column = _values(batch, self._time)
        instants_ms = _instants_ms(column)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        at = np.searchsorted(self._starts, instants_ms, "right") - 1
        unroutable = (at < 0) | (instants_ms >= self._ends[np.maximum(at, 0)]) | ~valid
        inside = (instants_ms >= _CALENDAR_MS[0]) & (instants_ms < _CALENDAR_MS[1])
        beyond = unroutable & valid & ~inside
        absent: tuple[PartitionRange, ...] = ()
        if unroutable.any():
            step_ms = _HOUR_MS if self._unit == "hour" else _DAY_MS
            steps = np.unique(instants_ms[unroutable & valid & inside] // step_ms)
            absent = tuple(sorted({partition_of(step * step_ms, self._unit) for step in steps.tolist()}))
        return np.where(unroutable, 0, at), unroutable, beyond, absent

    def _bucket(self, batch: pa.RecordBatch) -> Longs:
        if self._buckets == 1:
            return np.zeros(batch.num_rows, np.int64)
        if not self._keys:
            return np.arange(batch.num_rows, dtype=np.int64) % self._buckets
        key_hashes = hashes([_values(batch, column) for column in self._keys])
        return (key_hashes % np.uint64(self._buckets)).astype(np.int64)


def _values(batch: pa.RecordBatch, column: SchemaColumn) -> pa.Array:
    kind = arrow_type(column.definition.column_type)
    if column.name not in batch.schema.names:
        if column.default is None and not column.definition.nullable:
            raise DefinitionError(
                f"a batch lacks the column {column.name}", expected="its values: it has no default"
            )
        return pa.repeat(pa.scalar(column.default, kind), batch.num_rows)
    values = single_chunk(batch.column(column.name))
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if values.type == kind else values.cast(kind)


def _instants_ms(column: pa.Array) -> Longs:
    """Return dates and timestamps in milliseconds, rounded down; 0 where they are null."""
    if pa.types.is_date32(column.type):
        days: Longs = column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return days * _DAY_MS
    micros = pc.fill_null(column.cast(pa.timestamp("us")).cast(pa.int64()), 0)
    instants_us: Longs = micros.to_numpy(zero_copy_only=False)
    return instants_us // 1000
