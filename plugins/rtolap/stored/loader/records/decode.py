"""Records → typed Arrow columns of the table, and a named reason for each record that is refused.

Only the columns that are written are read and checked. Absent and null are one: the default where the target
column has one to fill in, else null where the column takes it, else the record is refused. Control records of
a topic with watermarks are left out: they are neither rows nor refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.column_types import BIGINT, STRING
from rtolap.columnar.schema import arrow_type
from rtolap.events.classify import Leaf, Problem
from rtolap.events.event_time import EventTimeParser
from rtolap.events.formats.debezium import DELETE
from rtolap.events.formats.readers import Registries, no_registries, record_reader
from rtolap.events.formats.sources import NOTHING_BESIDE, Beside, with_sources
from rtolap.events.plan import NO_VALUE, JsonPlan, source_path
from rtolap.events.rejects import Rejects, rejects_of
from rtolap.events.rows import at_path
from rtolap.model.formats.record_format import OPERATION, RecordFormat
from rtolap.model.stored.schema import default_value
from rtolap.model.table import VALUE
from rtolap.stored.loader.target import Target, TargetColumn
from rtolap.watermark.records.columns import stated

_SHOWN_CHARS_MAX = 80
_JSON = RecordFormat()


class Decoded(NamedTuple):
    """Decoded records.

    Attributes:
        rows: the rows in the order of the records, with the table's columns in its order.
        rejects: the refused records.
        events: the number of records that are no control records, refused ones among them.
    """

    rows: pa.RecordBatch
    rejects: Rejects
    events: int


class RecordDecoder:
    """Decoder of one thread, for one state of the table's columns. Raises DefinitionError for paths that
    collide.
    """

    def __init__(
        self,
        target: Target,
        *,
        record_bytes_max: int,
        unknown_columns: str = "ignore",
        watermark_field: str | None = None,
        form: RecordFormat = _JSON,
        fields: Sequence[str] = (),
        registries: Registries = no_registries,
    ) -> None:
        """Take the target. `watermark_field` is the field of the records' values that marks control
        records. `fields` are those of a record that is read by position: none for the table's columns."""
        self._columns = target.columns
        self._keys = form.keys
        self._has_envelope = form.envelope != "none"
        self._bytes_max = record_bytes_max
        formats = {column.source.format for column in self._columns}
        self._times = {form: EventTimeParser(form, "UTC") for form in formats}
        self._leaves = {column.name: self._leaf(column) for column in self._columns}
        self._statement_path = () if watermark_field is None else (watermark_field,)
        sources = {column.name: column.source.source for column in self._columns}
        self._sourced = {
            sources[name]: leaf
            for name, leaf in self._leaves.items()
            if sources[name] not in (VALUE, OPERATION)
        }
        leaves = tuple(leaf for name, leaf in self._leaves.items() if sources[name] == VALUE)
        if watermark_field is not None:
            leaves += (Leaf(watermark_field, self._statement_path, STRING, False),)
        if not leaves:  # a reader reads a column
            leaves = (Leaf("", NO_VALUE, STRING, False),)
        known = (
            frozenset(leaf.path[0] for leaf in leaves).union(self._statement_path, target.left_out)
            if unknown_columns == "reject"
            else None
        )
        names = fields or tuple(name for name, source in sources.items() if source == VALUE)
        self._reader = record_reader(JsonPlan(leaves, known), form, names, registries)
        self.schema = pa.schema(
            [pa.field(column.name, arrow_type(column.type), column.nullable) for column in self._columns]
        )

    def decode(
        self,
        values: Sequence[bytes | None],
        control: NDArray[np.bool_] | None = None,
        beside: Beside = NOTHING_BESIDE,
    ) -> Decoded:
        """Decode records. `control` says which of them are control records, where their headers say it."""
        problems: dict[int, Problem] = {}
        records, places = self._sized(values, problems, control)
        events = len(places) + len(problems)
        rows, places = self._reader.read(records, places, problems)
        if self._statement_path:
            statement_controls = stated(
                at_path(rows, self._statement_path), np.zeros(len(places), np.int32)
            ).control
            if statement_controls.any():
                rows, places = rows.filter(pa.array(~statement_controls)), places[~statement_controls]
                events -= int(np.count_nonzero(statement_controls))
        rows, places = with_sources(rows, places, self._sourced, beside, problems)
        keep = np.ones(len(rows), bool)
        gone = self._gone(rows)
        columns = [self._column(column, rows, places, keep, gone, problems) for column in self._columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not keep.all():
            batch = batch.filter(pa.array(keep))
        if self._has_envelope:
            batch = latest_of_keys(batch, self._keys)
        return Decoded(batch, rejects_of(problems), events)

    def _gone(self, rows: pa.StructArray) -> NDArray[np.bool_]:
        """Return which rows are deleted: only their keys count."""
        if not self._has_envelope:
            return np.zeros(len(rows), bool)
        flags: NDArray[np.bool_] = pc.equal(at_path(rows, source_path(OPERATION)), DELETE).to_numpy(
            zero_copy_only=False
        )
        return flags

    def _sized(
        self,
        values: Sequence[bytes | None],
        problems: dict[int, Problem],
        control: NDArray[np.bool_] | None,
    ) -> tuple[list[bytes], NDArray[np.int64]]:
        lengths = np.fromiter((-1 if value is None else len(value) for value in values), np.int64)
        is_event = np.ones(len(values), bool) if control is None else ~control
        if self._has_envelope:
            is_event &= lengths >= 0  # a tombstone says again that a row is gone
        for place in np.flatnonzero(is_event & (lengths < 0)):
            problems[int(place)] = Problem("tombstone", "a record without a value")
        for place in np.flatnonzero(is_event & (lengths > self._bytes_max)):
            detail = f"{lengths[place]} bytes, expected at most {self._bytes_max}"
            problems[int(place)] = Problem("too_large", detail)
        places = np.flatnonzero(is_event & (lengths >= 0) & (lengths <= self._bytes_max))
        if len(places) == len(values):
            return [value for value in values if value is not None], places
        present = [value for place in places.tolist() if (value := values[place]) is not None]
        return present, places

    @staticmethod
    def _path(column: TargetColumn) -> tuple[str, ...]:
        source = column.source
        return source.json_path if source.source == VALUE else source_path(source.source)

    def _leaf(self, column: TargetColumn) -> Leaf:
        kind, path = column.type, self._path(column)
        if kind.kind not in ("date", "timestamp"):
            return Leaf(column.name, path, kind, False)
        times = self._times[column.source.format]
        if times.is_epoch:
            return Leaf(column.name, path, BIGINT, False, times=times)
        return Leaf(column.name, path, STRING, False, moment=kind, times=times)

    def _column(
        self,
        column: TargetColumn,
        rows: pa.StructArray,
        places: NDArray[np.int64],
        keep: NDArray[np.bool_],
        gone: NDArray[np.bool_],
        problems: dict[int, Problem],
    ) -> pa.Array:
        """Return a column, filled where it can be. Rows for which it cannot are struck from `keep`."""
        raw = at_path(rows, self._path(column))
        filled = self._parsed(column, raw)
        if filled.null_count > raw.null_count:
            lost = pc.and_(filled.is_null(), raw.is_valid()).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(lost & keep):
                shown = str(raw[int(row)].as_py())[:_SHOWN_CHARS_MAX]
                detail = f"column {column.name}: expected {column.type}, found {shown!r}"
                problems[int(places[row])] = Problem("wrong_type", detail)
            keep &= ~lost
        if filled.null_count and column.name in self._keys:
            lacking = filled.is_null().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(lacking & keep):
                detail = f"key {column.name}: expected {column.type}, found nothing or null"
                problems[int(places[row])] = Problem("missing_value", detail)
            keep &= ~lacking
        if filled.null_count and column.default is not None:
            filled = filled.fill_null(pa.scalar(default_value(column.default, column.type), filled.type))
        elif filled.null_count and not column.nullable:
            void = filled.is_null().to_numpy(zero_copy_only=False)
            if column.name not in self._keys:
                void &= ~gone
            for row in np.flatnonzero(void & keep):
                detail = f"column {column.name}: expected {column.type}, found nothing or null"
                problems[int(places[row])] = Problem("missing_value", detail)
            keep &= ~void
            # what is struck must not stand as null in a column that takes none
            filled = filled.fill_null(_some_value(filled.type))
        return filled

    def _parsed(self, column: TargetColumn, raw: pa.Array) -> pa.Array:
        wanted = arrow_type(column.type)
        return raw if raw.type == wanted else self._times[column.source.format].read(raw, wanted)


def latest_of_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the last row of each key, in the order of the rows."""
    if not rows.num_rows:
        return rows
    table = pa.table([rows.column(key) for key in keys], names=list(keys))
    table = table.append_column("", pa.array(np.arange(rows.num_rows)))
    last = table.group_by(list(keys)).aggregate([("", "max")]).column("_max")
    return rows if len(last) == rows.num_rows else rows.take(pa.array(np.sort(last.to_numpy())))


def _some_value(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(
        "" if pa.types.is_string(kind) else 0, pa.int32() if pa.types.is_date(kind) else None
    ).cast(kind)
