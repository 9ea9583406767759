"""A batch of records → typed Arrow columns, and a named reason for each record that is refused.

Nothing is lost on the way in: numbers that a column cannot hold exactly, broken bytes and unreadable times
are rejects, never wrong values, and one bad record never costs its batch. Only columns that the cube uses are
read and checked. Numbers may be written as strings; doubles take the nearest double, as JSON numbers do.

Control records of a topic that carries watermarks are neither events nor rejects, and heartbeats of hosts are
not either; their offsets count on.

The order of checks (and so the reason given when a record has several faults): size, bytes and JSON, types,
unknown columns, dates and timestamps, computed columns that the table's condition reads, the condition, event
time, other computed columns. A record that the condition leaves out is no reject, whatever comes after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.events.classify import Problem
from rtolap.events.columns import ColumnMaker, Places, ReadColumns
from rtolap.events.event_time import EventTimeParser
from rtolap.events.formats.readers import Registries, no_registries, record_reader
from rtolap.events.formats.sources import Beside, with_sources
from rtolap.events.plan import ReadPlan
from rtolap.events.rejects import Rejects, rejects_of
from rtolap.events.rows import at_path
from rtolap.model.cube import Schema
from rtolap.watermark.records.columns import Stated, Statements, stated

_NO_TEXTS: Mapping[str, Sequence[bytes | None]] = {}


@dataclass(frozen=True, slots=True)
class Filtered:
    """Records that the table's condition leaves out, or that are another revision's of the cube: they are
    neither in the cube nor rejects.

    Attributes:
        partitions: of each record.
        events: those that have an event time: EVENT_MS, PARTITION, and the host's column if there is one.
        places: where in the batch each row of `events` stood.
    """

    partitions: NDArray[np.int32]
    events: pa.Table
    places: Places


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
        filtered: what the table's condition and the cube's revision leave out; None where there is neither.
    """

    table: pa.Table
    rejects: Rejects
    statements: Statements | None = None
    places: Places = field(default_factory=lambda: np.empty(0, np.int64))
    heartbeats: tuple[pa.Table, Places] | None = None
    filtered: Filtered | None = None


class EventDecoder:
    """The decoder of one cube and one thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema, registries: Registries = no_registries) -> None:
        self._schema = schema
        time = schema.table.time
        times = EventTimeParser(time.format, time.zone)
        plan = ReadPlan(schema, times)
        self._plan = plan
        self._rows = record_reader(plan, schema.table.record_format, schema.table.record_fields, registries)
        self._columns = ColumnMaker(schema, plan, times)

    def decode(
        self,
        values: Sequence[bytes | None],
        partitions: NDArray[np.int32],
        offsets: NDArray[np.int64],
        *,
        now_ms: int,
        create_ms: NDArray[np.int64] | None = None,
        statements: Sequence[bytes | None] | None = None,
        texts: Mapping[str, Sequence[bytes | None]] = _NO_TEXTS,
    ) -> Decoded:
        """Decode records. `values[i]` was read from `partitions[i]` at `offsets[i]`.

        An event time is in the future when it is beyond the record's own timestamp `create_ms[i]` by more
        than the table allows: replays and replicas judge alike. `now_ms` stands in where there is none
        (negative, or no array).

        `statements[i]` stood in the watermark header; to be given where the table has watermarks there.
        `texts`: keys and headers, where the table has columns of them (see `Batch`).
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
        beside = Beside(partitions, offsets, create_ms, texts)
        rows, places = with_sources(rows, places, self._plan.sourced, beside, problems)
        present_ms = _present(create_ms, places, now_ms)
        made = self._columns.columns(rows, places, present_ms, problems)
        columns, keep = made.columns, made.keep
        filtered = self._filtered(made, places, np.asarray(partitions, np.int32))
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
            filtered,
        )

    def _filtered(self, made: ReadColumns, places: Places, partitions: NDArray[np.int32]) -> Filtered | None:
        table = self._schema.table
        if table.where is None and self._schema.cube.revision is None:
            return None
        timed = pa.array(np.flatnonzero(made.timed))
        names = [EVENT_MS] if table.host_column not in made.columns else [EVENT_MS, table.host_column]
        columns = {name: made.columns[name].take(timed) for name in names}
        columns[PARTITION] = pa.array(partitions[places[made.timed]])
        return Filtered(partitions[places[made.filtered]], pa.table(columns), places[made.timed])

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
