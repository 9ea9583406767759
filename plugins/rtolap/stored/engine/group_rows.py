"""Partial aggregates of the rows of a scan, within a bound of memory.

Rows are grouped some hundred thousand at a time, and the groups are merged. Where the groups become too many,
or a sum might leave its type, the groups so far are sent and new ones are begun: the reader merges groups
that come more than once. Where grouping saves little, each batch is grouped by itself only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.pushed_schema import partials_schema
from rtolap.columnar.sum_bounds import DECIMAL_MAX, INT64_MAX, largest_of_column
from rtolap.model.stored.pushed import PartialColumn, Partials
from rtolap.model.stored.schema import StoredSchema

BATCH_ROWS = 262_144  # rows that are grouped at a time
BATCH_BYTES = 16 << 20  # the same in bytes
GROUPS_MAX = 131_072  # groups that wait for more rows
GROUPS_BYTES_MAX = 32 << 20  # the same in bytes
_SAVED_MIN = 2  # rows for each group, below which groups are not merged beyond their batch
_SIGN = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_WORKING = {"rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}


def group_rows(
    batches: Iterable[pa.RecordBatch], schema: StoredSchema, partials: Partials
) -> Iterator[pa.RecordBatch]:
    """Yield partial aggregates of the rows, in the columns of `partials_schema`."""
    sent = partials_schema(schema, partials)
    groups = _Groups(partials, sent)
    for rows in gathered(batches, BATCH_ROWS, BATCH_BYTES):
        yield from groups.add_rows(rows)
    yield from groups.take()


def gathered(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Yield the same rows in larger pieces: at least one batch, and no more once a bound is reached."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= rows_max or size_bytes >= bytes_max:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


class _Groups:
    """Groups that wait for more rows, in working form: doubles of extremes are whole numbers in order."""

    def __init__(self, partials: Partials, sent: pa.Schema) -> None:
        self._partials, self._sent = partials, sent
        self._sums = [
            each.name
            for each in partials.columns
            if each.function == "sum" and not pa.types.is_floating(sent.field(each.name).type)
        ]
        self._waiting: pa.Table | None = None
        self._bounds = dict.fromkeys(self._sums, 0)
        self._saves = True

    def add_rows(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Add rows. Yield groups that do not wait any more."""
        begun = pa.table(
            {
                **{name: rows.column(name) for name in self._partials.groups},
                **{each.name: self._begin(each, rows) for each in self._partials.columns},
            }
        )
        bounds = {name: _largest(begun.column(name)) * rows.num_rows for name in self._sums}
        if any(bound > self._limit(name) for name, bound in bounds.items()):
            yield from self.take()
            yield from self._send(begun)  # each row by itself: the reader's sum refuses what is too large
            return
        merged = self._merge(self._widened(begun, bounds))
        if not self._saves:
            yield from self._send(merged)
            return
        if any(self._bounds[name] + bound > self._limit(name) for name, bound in bounds.items()):
            yield from self.take()
        if self._waiting is not None:
            merged = self._merge(pa.concat_tables([self._waiting, merged]))
        self._waiting = merged
        self._bounds = {name: self._bounds[name] + bound for name, bound in bounds.items()}
        if merged.num_rows > GROUPS_MAX or merged.nbytes > GROUPS_BYTES_MAX:
            self._saves = rows.num_rows >= _SAVED_MIN * merged.num_rows
            yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the groups that wait, and begin anew."""
        waiting, self._waiting = self._waiting, None
        self._bounds = dict.fromkeys(self._sums, 0)
        if waiting is not None:
            yield from self._send(waiting)

    def _limit(self, name: str) -> int:
        return INT64_MAX if pa.types.is_integer(self._sent.field(name).type) else DECIMAL_MAX

    def _begin(self, partial: PartialColumn, rows: pa.Table) -> pa.Array:
        """Return the partial of each row by itself, in working form."""
        if partial.function == "rows":
            return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        values = single_chunk(rows.column(partial.column))
        match partial.function:
            case "count":
                return values.is_valid().cast(pa.int64())
            case "min" | "max" if pa.types.is_floating(values.type):
                return ordered_doubles(values)
            case "sum" if pa.types.is_integer(values.type):
                return values.cast(pa.int64())
        return values

    def _widened(self, begun: pa.Table, bounds: Mapping[str, int]) -> pa.Table:
        """Return the rows with whole numbers as decimals where their sum may need more than 64 bits."""
        for name, bound in bounds.items():
            place = begun.schema.get_field_index(name)
            if bound > INT64_MAX and pa.types.is_integer(begun.field(place).type):
                wide = begun.column(place).cast(self._sent.field(name).type)
                begun = begun.set_column(place, name, wide)
        return begun

    def _merge(self, begun: pa.Table) -> pa.Table:
        """Return a row for each group. Whole numbers and decimals of sums get the type that is sent."""
        names = list(self._partials.groups)
        functions = [(each.name, _WORKING[each.function]) for each in self._partials.columns]
        merged = begun.group_by(names, use_threads=False).aggregate(functions)
        columns = dict(zip((*names, *(name for name, _ in functions)), merged.columns, strict=True))
        for name in self._sums:
            columns[name] = columns[name].cast(self._sent.field(name).type)
        return pa.table(columns)

    def _send(self, groups: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = [groups.column(name) for name in self._partials.groups]
        for each in self._partials.columns:
            column, kind = groups.column(each.name), self._sent.field(each.name).type
            is_ordered = each.function in ("min", "max") and pa.types.is_floating(kind)
            columns.append(_of_ordered(single_chunk(column)) if is_ordered else column.cast(kind))
        yield from pa.table(columns, schema=self._sent).to_batches(max_chunksize=BATCH_ROWS)


def _largest(column: pa.ChunkedArray) -> int:
    """Return a bound of the absolute values, unscaled."""
    values = single_chunk(column)
    if pa.types.is_integer(values.type):
        bounds = pc.min_max(values).as_py()
        return 0 if bounds["min"] is None else max(abs(bounds["min"]), abs(bounds["max"]))
    return largest_of_column(values)


def ordered_doubles(column: pa.Array) -> pa.Array:
    """Return whole numbers in the order of the doubles, NaN after infinity; null where there is none."""
    doubles = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    doubles[np.isnan(doubles)] = np.nan  # the one without a sign
    bits = doubles.view(np.int64)
    numbers = bits ^ ((bits >> np.int64(63)) & _SIGN)
    absent = None if not column.null_count else column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers, mask=absent)


def _of_ordered(numbers: pa.Array) -> pa.Array:
    values = np.array(numbers.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    bits = values ^ ((values >> np.int64(63)) & _SIGN)
    absent = None if not numbers.null_count else numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(bits.view(np.float64), mask=absent)
