"""Rows of records as they were read → the columns of a cube, and what is to be kept of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.given.sketches import bytes_of_base64, given_sketches
from rtolap.columnar.schema import EVENT_MS, arrow_type
from rtolap.events.classify import Leaf, Problem
from rtolap.events.computed import ComputedColumn, Condition
from rtolap.events.decimals import rounded
from rtolap.events.event_time import EventTimeParser, Instants, lenient
from rtolap.events.plan import ReadPlan
from rtolap.events.rows import at_path
from rtolap.model.cube import Schema

Places = NDArray[np.int64]
_SHOWN_CHARS_MAX = 80
_FUTURE_MS_MAX = 1 << 62  # no event time lies as far ahead as this


class ReadColumns(NamedTuple):
    """Columns of all rows that could be read, EVENT_MS last.

    Attributes:
        keep: rows that are events of the table.
        filtered: rows that the table's condition leaves out, or the times of the cube's revision.
        timed: those of them that have an event time.
    """

    columns: dict[str, pa.Array]
    keep: NDArray[np.bool_]
    filtered: NDArray[np.bool_]
    timed: NDArray[np.bool_]


class ColumnMaker:
    """The column maker of one cube and thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema, plan: ReadPlan, times: EventTimeParser) -> None:
        self._schema = schema
        self._plan = plan
        self._times = times
        self._types = {
            name: arrow_type(schema.table.column(name).column_type) for name in schema.read_columns
        }
        self._computed = [
            ComputedColumn(schema.table, column)
            for column in schema.needed_columns
            if column.expression is not None
        ]
        where = schema.table.where
        self._condition = None if where is None else Condition(schema.table, where)

    def columns(
        self,
        rows: pa.StructArray,
        places: Places,
        present_ms: NDArray[np.int64],
        problems: dict[int, Problem],
    ) -> ReadColumns:
        """Return columns of all rows; `problems` gets those that are refused.

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
        for name, form in self._schema.given_sketches.items():
            columns[name], faults = given_sketches(columns[name], form)
            for at, fault in faults.items():
                if keep[at]:
                    problems[int(places[at])] = Problem(fault.reason, f"column {name}: {fault.detail}")
                    keep[at] = False
        assert times is not None, "source columns hold the event time"
        beyond: dict[ComputedColumn, NDArray[np.bool_]] = {}  # rows whose value does not fit the column
        for computed in self._computed:
            columns[computed.name], beyond[computed] = computed.values(columns, len(keep))
        filtered = self._filtered(columns, keep, {each.name: rows for each, rows in beyond.items()})
        keep &= ~filtered
        event_ms = times.micros // 1000
        # Subtracted, because a timestamp may be so large that nothing can be added to it.
        ahead = event_ms - min(self._schema.table.future_max_ms, _FUTURE_MS_MAX) > present_ms
        timeless = times.missing | times.invalid | ahead
        for row in np.flatnonzero(timeless & keep) if timeless.any() else ():
            limit_ms = int(present_ms[row]) + self._schema.table.future_max_ms
            problems[int(places[row])] = self._time_problem(times, int(row), time_raw, limit_ms)
        keep &= ~timeless
        outside = keep & self._outside(event_ms, columns)
        filtered |= outside
        keep &= ~outside
        for computed, misfits in beyond.items():
            kind = self._schema.column(computed.name).column_type
            for row in np.flatnonzero(misfits & keep):
                detail = f"column {computed.name}: {computed.text} does not fit {kind}"
                problems[int(places[row])] = Problem("out_of_range", detail)
            keep &= ~misfits
        columns = {name: columns[name] for name in self._schema.source_columns}
        columns[EVENT_MS] = pa.array(event_ms)
        return ReadColumns(columns, keep, filtered, filtered & ~timeless)

    def _filtered(
        self, columns: dict[str, pa.Array], keep: NDArray[np.bool_], beyond: dict[str, NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        """Return which of the rows to keep the table's condition leaves out.

        Heartbeats are kept, and so are rows with a value that the condition reads and that does not fit its
        column: they are refused.
        """
        if self._condition is None:
            return np.zeros(len(keep), bool)
        filtered = keep & ~self._condition.holds(columns, len(keep))
        for name in self._condition.inputs & beyond.keys():
            filtered &= ~beyond[name]
        if (mark := self._schema.table.heartbeat_column) is not None:
            filtered &= ~columns[mark].fill_null(False).to_numpy(zero_copy_only=False)
        return filtered

    def _outside(self, event_ms: NDArray[np.int64], columns: dict[str, pa.Array]) -> NDArray[np.bool_]:
        """Return which rows are events of another revision of the cube. Heartbeats are not."""
        outside = np.zeros(len(event_ms), bool)
        revision = self._schema.cube.revision
        if revision is None:
            return outside
        if revision.reads_from_ms is not None:
            outside |= event_ms < revision.reads_from_ms
        if revision.until_ms is not None:
            outside |= event_ms >= revision.until_ms
        if (mark := self._schema.table.heartbeat_column) is not None:
            outside &= ~columns[mark].fill_null(False).to_numpy(zero_copy_only=False)
        return outside

    def _parsed(self, leaf: Leaf, raw: pa.Array) -> pa.Array:
        """Parse strings as dates, timestamps and bytes, null where they are none. Round decimals, null where
        they then have too many digits. Leave everything else as it is."""
        wanted = self._types[leaf.name]
        if raw.type == wanted:
            return raw
        if leaf.rounded is not None:
            return rounded(raw, wanted)
        if pa.types.is_binary(wanted):
            return bytes_of_base64(raw)
        assert leaf.times is not None, "only points in time are read as something else"
        return leaf.times.read(raw, wanted)

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
