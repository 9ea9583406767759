"""A batch of JSON records → typed Arrow columns, and a named reason for each record that is refused.

Nothing is lost on the way in: numbers that a column cannot hold exactly, broken bytes and unreadable times
are rejects, never wrong values, and one bad record never costs its batch. Only columns that the cube uses are
read and checked. Numbers may be written as strings; doubles take the nearest double, as JSON numbers do.

Control records of a topic that carries watermarks are neither events nor rejects, and heartbeats of hosts are
not either; their offsets count on.

The order of checks (and so the reason given when a record has several faults): size, bytes and JSON, types,
unknown columns, dates and timestamps, event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION, arrow_type
from rtolap.events.classify import Leaf, Problem
from rtolap.events.computed import ComputedColumn
from rtolap.events.decimals import rounded
from rtolap.events.event_time import EventTimeParser, Instants, lenient
from rtolap.events.plan import ReadPlan
from rtolap.events.rejects import Rejects, rejects_of
from rtolap.events.rows import RowReader, at_path
from rtolap.model.cube import Schema
from rtolap.watermark.records.columns import Stated, Statements, stated

Places = NDArray[np.int64]
_SHOWN_CHARS_MAX = 80
_FUTURE_MS_MAX = 1 << 62  # no event time lies as far ahead as this


class _ColumnMaker:
    """The column maker of one cube and thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema, plan: ReadPlan, times: EventTimeParser) -> None:
        self._schema = schema
        self._plan = plan
        self._times = times
        self._instants = EventTimeParser("iso8601", "UTC")
        self._types = {
            name: arrow_type(schema.table.column(name).column_type) for name in schema.read_columns
        }
        self._computed = [
            ComputedColumn(schema.table, column)
            for column in schema.needed_columns
            if column.expression is not None
        ]

    def columns(
        self,
        rows: pa.StructArray,
        places: Places,
        present_ms: NDArray[np.int64],
        problems: dict[int, Problem],
    ) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
        """Return columns of all rows, EVENT_MS last, and which rows to keep; `problems` gets the others.

        `present_ms`: what was "now" for each row.
        """
        keep = np.ones(len(rows), bool)
        columns: dict[str, pa.Array] = {}
        times: Instants | None = None
        time_raw = pa.nulls(0)
        for leaf in self._plan.columns:
            raw = at_path(rows, leaf.path)
            if leaf.is_time:
                times, time_raw = self._times.parse(raw), raw
                columns[leaf.name] = self._time_column(leaf, raw, times)
                continue
            column, wanted = self._parsed(leaf, raw), self._types[leaf.name]
            if column.null_count > raw.null_count:
                lost = pc.and_(column.is_null(), raw.is_valid()).to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(lost & keep):
                    found = raw[int(row)].as_py()
                    shown = repr(found[:_SHOWN_CHARS_MAX]) if isinstance(found, str) else str(found)
                    detail = f"column {leaf.name}: expected {leaf.rounded or wanted}, found {shown}"
                    problems[int(places[row])] = Problem("wrong_type", detail)
                keep &= ~lost
            columns[leaf.name] = column
        assert times is not None, "source columns hold the event time"
        event_ms = times.micros // 1000
        # Subtracted, because a timestamp may be so large that nothing can be added to it.
        ahead = event_ms - min(self._schema.table.future_max_ms, _FUTURE_MS_MAX) > present_ms
        if times.missing.any() or times.invalid.any() or ahead.any():
            for row in np.flatnonzero((times.missing | times.invalid | ahead) & keep):
                limit_ms = int(present_ms[row]) + self._schema.table.future_max_ms
                problems[int(places[row])] = self._time_problem(times, int(row), time_raw, limit_ms)
            keep &= ~(times.missing | times.invalid | ahead)
        for computed in self._computed:
            columns[computed.name] = self._compute(computed, columns, places, keep, problems)
        columns = {name: columns[name] for name in self._schema.source_columns}
        columns[EVENT_MS] = pa.array(event_ms)
        return columns, keep

    def _compute(
        self,
        computed: ComputedColumn,
        columns: dict[str, pa.Array],
        places: Places,
        keep: NDArray[np.bool_],
        problems: dict[int, Problem],
    ) -> pa.Array:
        """Return a computed column; rows whose value does not fit it are refused."""
        values, beyond = computed.values(columns, len(keep))
        kind = self._schema.column(computed.name).column_type
        for row in np.flatnonzero(beyond & keep):
            detail = f"column {computed.name}: {computed.text} does not fit {kind}"
            problems[int(places[row])] = Problem("out_of_range", detail)
        keep &= ~beyond
        return values

    def _parsed(self, leaf: Leaf, raw: pa.Array) -> pa.Array:
        """Parse strings as dates and timestamps, null where they are none. Round decimals, null where they
        then have too many digits. Leave everything else as it is."""
        wanted = self._types[leaf.name]
        if raw.type == wanted:
            return raw
        if leaf.rounded is not None:
            return rounded(raw, wanted)
        if pa.types.is_date(wanted):
            encoded = raw.dictionary_encode()
            days = lenient(lambda part: part.cast(wanted), encoded.dictionary)
            return days.take(encoded.indices)
        instants = self._instants.parse(raw)
        return pa.array(instants.micros, mask=instants.missing | instants.invalid).cast(wanted)

    def _time_column(self, leaf: Leaf, raw: pa.Array, times: Instants) -> pa.Array:
        """Return the event time as its declared type: an instant for timestamps, otherwise as it was
        written.
        """
        wanted = self._types[leaf.name]
        if raw.type == wanted:
            return raw
        if pa.types.is_timestamp(wanted):
            return pa.array(times.micros).cast(wanted)
        if pa.types.is_date(wanted):
            return lenient(lambda part: part.cast(wanted), pc.utf8_slice_codeunits(raw, 0, 10))
        return lenient(lambda part: part.cast(wanted), raw)

    def _time_problem(self, times: Instants, row: int, raw: pa.Array, limit_ms: int) -> Problem:
        name, time_format = self._schema.table.time.column, self._schema.table.time.format
        found = str(raw[row].as_py())[:_SHOWN_CHARS_MAX]
        if times.missing[row]:
            return Problem("missing_time", f"column {name} is absent or null")
        if times.invalid[row]:
            return Problem("invalid_time", f"column {name}: expected {time_format}, found {found!r}")
        return Problem("time_in_future", f"column {name}: {found} is beyond {limit_ms} ms")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded batch.

    Attributes:
        table: accepted records in input order: `Schema.source_columns`, then EVENT_MS, PARTITION, OFFSET.
        rejects: refused records, each with its reason.
        statements: what the producers state of their watermarks, where the table declares them. They may be
            believed once everything in `table` has been taken in.
        places: where in the batch each row of `table` stood.
        heartbeats: accepted records that are heartbeats, with the same columns, and where they stood; None
            where the table knows none.
    """

    table: pa.Table
    rejects: Rejects
    statements: Statements | None = None
    places: Places = field(default_factory=lambda: np.empty(0, np.int64))
    heartbeats: tuple[pa.Table, Places] | None = None


class EventDecoder:
    """The decoder of one cube and one thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        time = schema.table.time
        times = EventTimeParser(time.format, time.zone)
        plan = ReadPlan(schema, times)
        self._plan = plan
        self._rows = RowReader(plan)
        self._columns = _ColumnMaker(schema, plan, times)

    def decode(
        self,
        values: Sequence[bytes | None],
        partitions: NDArray[np.int32],
        offsets: NDArray[np.int64],
        *,
        now_ms: int,
        create_ms: NDArray[np.int64] | None = None,
        statements: Sequence[bytes | None] | None = None,
    ) -> Decoded:
        """Decode records. `values[i]` was read from `partitions[i]` at `offsets[i]`.

        An event time is in the future when it is beyond the record's own timestamp `create_ms[i]` by more
        than the table allows: replays and replicas judge alike. `now_ms` stands in where there is none
        (negative, or no array).

        `statements[i]` stood in the watermark header; to be given where the table has watermarks there.
        """
        problems: dict[int, Problem] = {}
        stated_in = self._stated(statements, partitions)
        records, places = self._sized(values, problems, None if stated_in is None else stated_in.control)
        rows, places = self._rows.read(records, places, problems)
        if self._plan.statement_path is not None:
            stated_in = stated(at_path(rows, self._plan.statement_path), np.asarray(partitions)[places])
            if stated_in.control.any():
                rows, places = (
                    rows.filter(pa.array(~stated_in.control)),
                    places[~stated_in.control],
                )
        present_ms = _present(create_ms, places, now_ms)
        columns, keep = self._columns.columns(rows, places, present_ms, problems)
        if not keep.all():
            chosen = pa.array(np.flatnonzero(keep))
            columns = {name: column.take(chosen) for name, column in columns.items()}
            places = places[keep]
        columns[PARTITION] = pa.array(np.asarray(partitions, np.int32)[places])
        columns[OFFSET] = pa.array(np.asarray(offsets, np.int64)[places])
        table, heartbeats = pa.table(columns), None
        if (mark := self._schema.table.heartbeat_column) is not None:
            is_beat = table.column(mark).fill_null(False)
            beats = is_beat.to_numpy()
            heartbeats = table.filter(is_beat), places[beats]
            table, places = table.filter(pc.invert(is_beat)), places[~beats]
        return Decoded(
            table,
            rejects_of(problems),
            None if stated_in is None else stated_in.statements,
            places,
            heartbeats,
        )

    def _stated(
        self, statements: Sequence[bytes | None] | None, partitions: NDArray[np.int32]
    ) -> Stated | None:
        """Return the statements of the headers. DefinitionError: the table has statements there, and they are
        not given."""
        if self._schema.table.watermark_records != "header":
            return None
        if statements is None:
            raise DefinitionError(
                f"table {self._schema.table.name} carries watermarks in headers",
                expected="a consumer that was opened with_statements",
                found="records without headers",
            )
        return stated(statements, partitions)

    def _sized(
        self,
        values: Sequence[bytes | None],
        problems: dict[int, Problem],
        control: NDArray[np.bool_] | None,
    ) -> tuple[list[bytes], Places]:
        """Leave out control records, tombstones and what is too large before anything parses them."""
        bytes_max = self._schema.table.record_bytes_max
        places = np.arange(len(values))
        if control is not None and control.any():
            places = places[~control]
            values = [values[place] for place in places.tolist()]
        records = [value for value in values if value is not None]
        if len(records) < len(values):
            absent = [position for position, value in enumerate(values) if value is None]
            for place in places[absent]:
                problems[int(place)] = Problem("tombstone", "a record without a value")
            places = np.delete(places, absent)
        if records and max(map(len, records)) > bytes_max:
            lengths = np.fromiter(map(len, records), np.int64, len(records))
            for position in np.flatnonzero(lengths > bytes_max):
                detail = f"{lengths[position]} bytes, expected at most {bytes_max}"
                problems[int(places[position])] = Problem("too_large", detail)
            fits = np.flatnonzero(lengths <= bytes_max)
            records, places = [records[position] for position in fits], places[fits]
        return records, places


def _present(create_ms: NDArray[np.int64] | None, places: Places, now_ms: int) -> NDArray[np.int64]:
    """Return "now" for each record: its own timestamp, the clock where it has none."""
    if create_ms is None:
        return np.full(len(places), now_ms, np.int64)
    own = np.asarray(create_ms, np.int64)[places]
    return np.where(own < 0, np.int64(now_ms), own)
