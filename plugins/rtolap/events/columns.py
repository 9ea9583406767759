"""Rows as read → columns as the table declares them: dates, timestamps and the event time parsed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.schema import EVENT_MS, arrow_type
from rtolap.events.classify import Leaf, Problem
from rtolap.events.event_time import EventTimeParser, Instants, lenient
from rtolap.events.plan import ReadPlan
from rtolap.events.rows import at_path
from rtolap.model.cube import Schema

Places = NDArray[np.int64]
_SHOWN_CHARS_MAX = 80
_WIDE_PRECISION = 76  # of the widest decimal: rounding up may need a digit more than the column has
_FUTURE_MS_MAX = 1 << 62  # no event time lies as far ahead as this


class ColumnMaker:
    """The column maker of one cube and thread (the pattern parser is not thread-safe)."""

    def __init__(self, schema: Schema, plan: ReadPlan, times: EventTimeParser) -> None:
        self._schema = schema
        self._plan = plan
        self._times = times
        self._instants = EventTimeParser("iso8601", "UTC")
        self._types = {
            name: arrow_type(schema.table.column(name).column_type) for name in schema.source_columns
        }

    def columns(
        self,
        rows: pa.StructArray,
        places: Places,
        present_ms: NDArray[np.int64],
        problems: dict[int, Problem],
    ) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
        """Columns of all rows, EVENT_MS last, and which rows to keep; `problems` gets the others.

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
        columns[EVENT_MS] = pa.array(event_ms)
        return columns, keep

    def _parsed(self, leaf: Leaf, raw: pa.Array) -> pa.Array:
        """Dates and timestamps from their strings, null where they are none; decimals rounded, null where
        they then have too many digits; everything else as it is."""
        wanted = self._types[leaf.name]
        if raw.type == wanted:
            return raw
        if leaf.rounded is not None:
            return _rounded(raw, wanted)
        if pa.types.is_date(wanted):
            encoded = raw.dictionary_encode()
            days = lenient(lambda part: part.cast(wanted), encoded.dictionary)
            return days.take(encoded.indices)
        instants = self._instants.parse(raw)
        return pa.array(instants.micros, mask=instants.missing | instants.invalid).cast(wanted)

    def _time_column(self, leaf: Leaf, raw: pa.Array, times: Instants) -> pa.Array:
        """The event time as its declared type: an instant for timestamps, otherwise as it was written."""
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


def _rounded(raw: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals with one more digit behind the point → `wanted`, halves away from zero."""
    wide = pa.decimal256(_WIDE_PRECISION, raw.type.scale)
    nearest = pc.round(raw.cast(wide), ndigits=wanted.scale, round_mode="half_towards_infinity")
    bound = pa.scalar(Decimal(10) ** (wanted.precision - wanted.scale), wide)
    fits = pc.less(pc.abs(nearest), bound)
    return pc.if_else(fits, nearest, pa.scalar(None, wide)).cast(wanted)
