"""A batch of JSON records → typed Arrow columns, and a named reason for each record that is refused.

Nothing is lost on the way in: numbers that a column cannot hold exactly, broken bytes and unreadable times
are rejects, never wrong values, and one bad record never costs its batch. Only columns that the cube uses are
read and checked. Numbers may be written as strings; doubles take the nearest double, as JSON numbers do.

The order of checks (and so the reason given when a record has several faults): size, bytes and JSON, types,
unknown columns, dates and timestamps, event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.format.schema import OFFSET, PARTITION
from rtolap.model.cube import Schema
from rtolap.stream.classify import Problem
from rtolap.stream.columns import ColumnMaker
from rtolap.stream.event_time import EventTimeParser
from rtolap.stream.plan import ReadPlan
from rtolap.stream.rejects import Rejects, rejects_of
from rtolap.stream.rows import RowReader

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """`table`: accepted records in input order: `Schema.source_columns`, then EVENT_MS, PARTITION, OFFSET."""

    table: pa.Table
    rejects: Rejects


class EventDecoder:
    """One per cube and thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        time = schema.table.time
        times = EventTimeParser(time.format, time.zone)
        plan = ReadPlan(schema, times)
        self._rows = RowReader(plan)
        self._columns = ColumnMaker(schema, plan, times)

    def decode(
        self,
        values: Sequence[bytes | None],
        partitions: NDArray[np.int32],
        offsets: NDArray[np.int64],
        *,
        now_ms: int,
        create_ms: NDArray[np.int64] | None = None,
    ) -> Decoded:
        """`values[i]` was read from `partitions[i]` at `offsets[i]`.

        An event time is in the future when it is beyond the record's own timestamp `create_ms[i]` by more
        than the table allows: replays and replicas judge alike. `now_ms` stands in where there is none
        (negative, or no array).
        """
        problems: dict[int, Problem] = {}
        records, places = self._sized(values, problems)
        rows, places = self._rows.read(records, places, problems)
        present_ms = _present(create_ms, places, now_ms)
        columns, keep = self._columns.columns(rows, places, present_ms, problems)
        if not keep.all():
            chosen = pa.array(np.flatnonzero(keep))
            columns = {name: column.take(chosen) for name, column in columns.items()}
            places = places[keep]
        columns[PARTITION] = pa.array(np.asarray(partitions, np.int32)[places])
        columns[OFFSET] = pa.array(np.asarray(offsets, np.int64)[places])
        return Decoded(pa.table(columns), rejects_of(problems))

    def _sized(
        self, values: Sequence[bytes | None], problems: dict[int, Problem]
    ) -> tuple[list[bytes], Places]:
        """Leave out tombstones and records that are too large before anything parses them."""
        bytes_max = self._schema.table.record_bytes_max
        places = np.arange(len(values))
        if None in values:
            for place, value in enumerate(values):
                if value is None:
                    problems[place] = Problem("tombstone", "a record without a value")
            places = np.delete(places, list(problems))
        records = [value for value in values if value is not None]
        if records and max(map(len, records)) > bytes_max:
            lengths = np.fromiter(map(len, records), np.int64, len(records))
            for position in np.flatnonzero(lengths > bytes_max):
                detail = f"{lengths[position]} bytes, expected at most {bytes_max}"
                problems[int(places[position])] = Problem("too_large", detail)
            fits = np.flatnonzero(lengths <= bytes_max)
            records, places = [records[position] for position in fits], places[fits]
        return records, places


def _present(create_ms: NDArray[np.int64] | None, places: Places, now_ms: int) -> NDArray[np.int64]:
    """What was "now" for each record: its own timestamp, the clock where it has none."""
    if create_ms is None:
        return np.full(len(places), now_ms, np.int64)
    own = np.asarray(create_ms, np.int64)[places]
    return np.where(own < 0, np.int64(now_ms), own)
