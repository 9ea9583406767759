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

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.format.schema import EVENT_MS, OFFSET, PARTITION, arrow_type
from rtolap.model.cube import Schema
from rtolap.stream.classify import Classifier, Leaf, Problem
from rtolap.stream.event_time import EventTimeParser, Instants, lenient
from rtolap.stream.json_reader import JsonReader
from rtolap.stream.lossy import LossScreen
from rtolap.stream.plan import ReadPlan
from rtolap.stream.rejects import Rejects, rejects_of

Places = NDArray[np.int64]
_SHOWN_CHARS_MAX = 80
_NUL, _ESCAPED_NUL = b"\0", b"\\u0000"
_FUTURE_MS_MAX = 1 << 62  # no event time lies as far ahead as this


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
        self._times = EventTimeParser(time.format, time.zone)
        self._instants = EventTimeParser("iso8601", "UTC")
        self._plan = ReadPlan(schema, self._times)
        self._reader = JsonReader(self._plan.arrow_schema)
        self._screen = LossScreen(self._plan.strict())
        self._classifier = Classifier(self._plan.leaves, self._plan.known)
        self._strict = _strict_objects(self._plan.known)
        self._types = {
            name: arrow_type(schema.table.column(name).column_type) for name in schema.source_columns
        }

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
        rows, places = self._rows(records, places, problems)
        present_ms = _present(create_ms, places, now_ms)
        columns, keep = self._columns(rows, places, present_ms, problems)
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

    def _rows(
        self,
        records: list[bytes],
        places: Places,
        problems: dict[int, Problem],
    ) -> tuple[pa.StructArray, Places]:
        """Parse; what the reader refuses is named by the classifier. Rows come in input order."""
        empty = pa.array([], pa.struct(list(self._plan.arrow_schema)))
        if not records:
            return empty, places
        text = self._reader.text(records)
        if _NUL in text or _ESCAPED_NUL in text:
            records, places = self._without_nuls(records, places, problems)
            if not records:
                return empty, places
            text = self._reader.text(records)
        rows = self._reader.parse(text, len(records))
        if rows is None:
            taken, chunks = self._reader.salvage(records, self._classifier.problem)
            for position in np.setdiff1d(np.arange(len(records)), np.array(taken, np.int64)):
                problem = self._classifier.problem(records[position])
                problems[int(places[position])] = problem or Problem(
                    "malformed_json", "the columnar reader refuses it"
                )
            records, places = [records[position] for position in taken], places[taken]
            rows = pa.concat_arrays(chunks) if chunks else empty
            text = self._reader.text(records)
        doubtful = self._doubtful(records, text, rows)
        if len(doubtful) == 0:
            return rows, places
        refused = []
        for position in doubtful:
            problem = self._classifier.problem(records[position])
            if problem is not None:
                problems[int(places[position])] = problem
                refused.append(position)
        kept = np.delete(np.arange(len(records)), refused)
        return rows.take(pa.array(kept)), places[kept]

    def _without_nuls(
        self, records: list[bytes], places: Places, problems: dict[int, Problem]
    ) -> tuple[list[bytes], Places]:
        """Refuse bad records that hold a NUL before the reader sees them.

        An error of its that quotes one aborts the process, and would do so again at every restart.
        """
        refused = []
        for position, record in enumerate(records):
            if _NUL in record or _ESCAPED_NUL in record:
                problem = self._classifier.problem(record)
                if problem is not None:
                    problems[int(places[position])] = problem
                    refused.append(position)
        kept = np.delete(np.arange(len(records)), refused)
        return [records[position] for position in kept], places[kept]

    def _doubtful(self, records: list[bytes], text: bytes, rows: pa.StructArray) -> Places:
        """Rows that parsed, but may have lost something, hold what the table does not allow or are no JSON.

        The reader takes commas for white space, and `{"a":1},"v":{}` for one row; a strict reader does not.
        """
        doubts = [np.zeros(0, np.int64)]
        if rows.null_count:
            doubts.append(np.flatnonzero(rows.is_null().to_numpy(zero_copy_only=False)))
        suspects = self._screen.suspects(text)
        if len(suspects):
            starts = np.array(self._reader.starts([len(record) for record in records]))
            doubts.append(np.searchsorted(starts, suspects, side="right") - 1)
        for leaf in self._plan.leaves:
            if leaf.type.kind == "double":
                column = _at(rows, leaf.path)
                if not pc.all(pc.is_finite(column), min_count=0).as_py():
                    odd = pc.fill_null(pc.invert(pc.is_finite(column)), False)
                    doubts.append(np.flatnonzero(odd.to_numpy(zero_copy_only=False)))
        if records:
            doubts.append(_not_strict(self._strict, records))
        return np.unique(np.concatenate(doubts))

    def _columns(
        self,
        rows: pa.StructArray,
        places: Places,
        present_ms: NDArray[np.int64],
        problems: dict[int, Problem],
    ) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
        keep = np.ones(len(rows), bool)
        columns: dict[str, pa.Array] = {}
        times: Instants | None = None
        time_raw = pa.nulls(0)
        for leaf in self._plan.leaves:
            raw = _at(rows, leaf.path)
            if leaf.is_time:
                times, time_raw = self._times.parse(raw), raw
                columns[leaf.name] = self._time_column(leaf, raw, times)
                continue
            column = self._parsed(leaf, raw)
            if column.null_count > raw.null_count:
                lost = pc.and_(column.is_null(), raw.is_valid()).to_numpy(zero_copy_only=False)
                for row in np.flatnonzero(lost & keep):
                    found = raw[int(row)].as_py()[:_SHOWN_CHARS_MAX]
                    detail = f"column {leaf.name}: expected {self._types[leaf.name]}, found {found!r}"
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
        """Dates and timestamps from their strings, null where they are none; everything else as it is."""
        wanted = self._types[leaf.name]
        if raw.type == wanted:
            return raw
        if pa.types.is_date(wanted):
            encoded = raw.dictionary_encode()
            days = lenient(lambda part: part.cast(wanted), encoded.dictionary)
            return days.take(encoded.indices)
        found = self._instants.parse(raw)
        return pa.array(found.micros, mask=found.missing | found.invalid).cast(wanted)

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


def _present(create_ms: NDArray[np.int64] | None, places: Places, now_ms: int) -> NDArray[np.int64]:
    """What was "now" for each record: its own timestamp, the clock where it has none."""
    if create_ms is None:
        return np.full(len(places), now_ms, np.int64)
    own = np.asarray(create_ms, np.int64)[places]
    return np.where(own < 0, np.int64(now_ms), own)


def _at(rows: pa.StructArray, path: tuple[str, ...]) -> pa.Array:
    """The leaf column; null below a null parent."""
    column: pa.Array = rows
    for part in path:
        place = column.type.get_field_index(part)
        column = column.flatten()[place] if column.null_count else column.field(place)
    return column


def _strict_objects(known: frozenset[str] | None) -> msgspec.json.Decoder[object]:
    """A decoder that takes strict JSON objects only, with names of `known` (None: any); builds no value."""
    fields = [
        (f"f{place}", msgspec.Raw, msgspec.field(name=name, default=msgspec.Raw()))
        for place, name in enumerate(sorted(known or ()))
    ]
    shape = msgspec.defstruct("Known", fields, forbid_unknown_fields=known is not None)
    return msgspec.json.Decoder(list[shape])  # type: ignore[valid-type]


def _not_strict(decoder: msgspec.json.Decoder[object], records: list[bytes]) -> Places:
    """Records that may be no strict object or hold an unknown name: halves of the batch until they are found.

    What the columnar reader took begins with a value; if anything follows it, the array is no JSON.
    """
    try:
        decoder.decode(b"[" + b",".join(records) + b"]")
    except (msgspec.MsgspecError, RecursionError):
        if len(records) == 1:
            return np.zeros(1, np.int64)
        middle = len(records) // 2
        right = _not_strict(decoder, records[middle:]) + middle
        return np.concatenate((_not_strict(decoder, records[:middle]), right))
    return np.zeros(0, np.int64)
