"""JSON records → Arrow rows of the plan's columns, in cache-sized chunks; refused ones are named.

A chunk goes through three readers, each for what it is good at: a strict one that builds no value (is it
JSON, an object, with known names?), the columnar one (see `json_reader`), and the screen for lost digits.
A chunk with a bad record costs about twice what a good one does, whatever the others hold: the record is
found by strict reading one by one, and the rest stays columnar.

The type of a record for a strict reader: its names, or the kinds of its values. No value is stored.

A shape only sorts out: whether a record is accepted is decided by the columnar reader and the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.undecodable import UNDECODABLE
from rtolap.events.classify import Classifier, Problem
from rtolap.events.json_reader import JsonLines, JsonReader, Lines, holds_escaped_nul
from rtolap.events.lossy import LossScreen
from rtolap.events.plan import JsonPlan
from rtolap.model.value_paths import index_of

Places = NDArray[np.int64]
Problems = dict[int, Problem]

CHUNK_RECORDS = 2048  # with 200-byte records, text and columns of a chunk stay in the processor's cache
_NUL = b"\0"


class RowReader:
    """The row reader of one cube and thread."""

    def __init__(self, plan: JsonPlan) -> None:
        self._plan = plan
        self._reader = JsonReader(plan.arrow_schema)
        self._screen = LossScreen(plan.strict(), items=plan.reads_items)
        self._classifier = Classifier(plan.leaves, plan.known)
        shape = known_names(plan.known)
        self._lines = JsonLines(plan.arrow_schema, shape)
        self._strict = msgspec.json.Decoder(list[shape])  # type: ignore[valid-type]
        self._strict_one = msgspec.json.Decoder(shape)
        self._typed_one = msgspec.json.Decoder(typed(plan.arrow_schema, plan.known))

    def read(self, records: list[bytes], places: Places, problems: Problems) -> tuple[pa.StructArray, Places]:
        """Return rows in input order and their places; `problems` gets the others.

        `places[i]`: of `records[i]`.
        """
        chunks: list[pa.StructArray] = []
        accepted: list[Places] = []
        size = -(-len(records) // max(1, -(-len(records) // CHUNK_RECORDS)))  # none is much smaller
        for first in range(0, len(records), max(1, size)):
            last = first + size
            rows, at = self._chunk(records[first:last], places[first:last], problems)
            chunks.append(rows)
            accepted.append(at)
        if not chunks:
            return pa.array([], pa.struct(list(self._plan.arrow_schema))), places
        if len(chunks) == 1:
            return chunks[0], accepted[0]
        return pa.concat_arrays(chunks), np.concatenate(accepted)

    def _chunk(
        self, records: list[bytes], places: Places, problems: Problems
    ) -> tuple[pa.StructArray, Places]:
        """Do as `read`."""
        lines = self._lines.read(records)
        if lines is not None:
            return self._undoubted(records, places, problems, lines)
        return self._closely(records, places, problems)

    def _closely(
        self, records: list[bytes], places: Places, problems: Problems
    ) -> tuple[pa.StructArray, Places]:
        """Do as `read`, of a chunk in which something may be wrong."""
        array = b"".join((b"[", b",".join(records), b"]"))
        if _holds_nul(array):
            # An error of the columnar reader that quotes a NUL aborts the process, at every restart again.
            odd = [at for at, record in enumerate(records) if _holds_nul(record)]
            records, places = self._without(odd, records, places, problems)
            array = b"[" + b",".join(records) + b"]"
        # One record `{"a":1},{"b":2}` passes here, and the columnar reader refuses it; of `{"a":1},"v":{}`,
        # which that one takes, the array is no JSON.
        odd = [] if fits(self._strict, array) else misfits(self._typed_one, records)
        if odd:
            loose = [at for at in odd if not fits(self._strict_one, records[at])]
            accepted = self._refuse(loose, records, places, problems)
            if accepted is not None:
                odd = np.flatnonzero(np.isin(accepted, odd)).tolist()
                records, places = [records[at] for at in accepted], places[accepted]
        text = self._reader.text(records)
        rows = self._reader.parse(text, len(records)) if not odd else None
        if rows is None:
            records, places, rows = self._salvaged(records, places, problems, odd)
            text = self._reader.text(records)
        starts = self._reader.starts([len(record) for record in records])
        return self._undoubted(records, places, problems, Lines(rows, text, np.array(starts, np.int64)))

    def _undoubted(
        self, records: list[bytes], places: Places, problems: Problems, lines: Lines
    ) -> tuple[pa.StructArray, Places]:
        """Return the rows that have lost nothing on reading, and their places."""
        accepted = self._refuse(self._doubtful(lines), records, places, problems)
        return (
            (lines.rows, places)
            if accepted is None
            else (lines.rows.take(pa.array(accepted)), places[accepted])
        )

    def _salvaged(
        self, records: list[bytes], places: Places, problems: Problems, odd: Sequence[int]
    ) -> tuple[list[bytes], Places, pa.StructArray]:
        """Read again what is refused together: return what the columnar reader takes; `odd` records are
        suspected."""
        taken, rows = self._reader.salvage(records, odd or misfits(self._typed_one, records))
        for position in np.setdiff1d(np.arange(len(records)), np.array(taken, np.int64)):
            problem = self._classifier.problem(records[position])
            problems[int(places[position])] = problem or Problem(
                "malformed_json", "the columnar reader refuses it"
            )
        return [records[position] for position in taken], places[taken], rows

    def _without(
        self, suspects: Sequence[int], records: list[bytes], places: Places, problems: Problems
    ) -> tuple[list[bytes], Places]:
        accepted = self._refuse(suspects, records, places, problems)
        return (records, places) if accepted is None else ([records[at] for at in accepted], places[accepted])

    def _refuse(
        self, suspects: Sequence[int] | Places, records: list[bytes], places: Places, problems: Problems
    ) -> Places | None:
        """Name the problem of each suspect that has one; the positions of the others, None for all."""
        refused = []
        for position in suspects:
            problem = self._classifier.problem(records[position])
            if problem is not None:
                problems[int(places[position])] = problem
                refused.append(int(position))
        return np.delete(np.arange(len(records)), refused) if refused else None

    def _doubtful(self, lines: Lines) -> Places:
        """Return rows that parsed, but may have lost something or hold what the table does not allow."""
        rows, doubts = lines.rows, [np.zeros(0, np.int64)]
        if rows.null_count:
            doubts.append(np.flatnonzero(rows.is_null().to_numpy(zero_copy_only=False)))
        suspects = self._screen.suspects(lines.text) if len(rows) else doubts[0]
        if len(suspects):
            doubts.append(np.searchsorted(lines.starts, suspects, side="right") - 1)
        for leaf in self._plan.leaves:
            if leaf.type.kind == "double":
                column = at_path(rows, leaf.path)
                if not pc.all(pc.is_finite(column), min_count=0).as_py():
                    odd = pc.fill_null(pc.invert(pc.is_finite(column)), False)
                    doubts.append(np.flatnonzero(odd.to_numpy(zero_copy_only=False)))
        return np.unique(np.concatenate(doubts))


def _holds_nul(record: bytes) -> bool:
    return _NUL in record or holds_escaped_nul(record)


def at_path(rows: pa.StructArray, path: tuple[str, ...]) -> pa.Array:
    """Return the leaf column; null below a null parent.

    Rows that were read as JSON have arrays. In others (`formats.columns.nested`) an item that is read is a
    field, named by its step.
    """
    column: pa.Array = rows
    for part in path:
        index = index_of(part)
        if index is not None and pa.types.is_list(column.type):
            column = _item(column, index)
            continue
        place = column.type.get_field_index(part)
        column = column.flatten()[place] if column.null_count else column.field(place)
    return column


def _item(lists: pa.ListArray, index: int) -> pa.Array:
    """Return an item of each array, null where there is none."""
    begins = lists.offsets.to_numpy()[:-1]
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(begins + index, mask=lengths <= index))


_NUMBER = Annotated[str, msgspec.Meta(pattern=r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*$")]
_INT = {32: Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)], 64: int}


def known_names(known: frozenset[str] | None) -> type[msgspec.Struct]:
    """Return a type that decodes strict JSON objects only, with names of `known` (None: any)."""
    fields = [
        (f"f{place}", msgspec.Raw, msgspec.field(name=name, default=msgspec.Raw()))
        for place, name in enumerate(sorted(known or ()))
    ]
    return msgspec.defstruct("Known", fields, forbid_unknown_fields=known is not None)


def typed(schema: pa.Schema, known: frozenset[str] | None = None) -> type[msgspec.Struct]:
    """Do as `known_names`, with such values as the columnar reader takes for these columns, nulls
    included."""
    kinds: dict[str, Any] = {column.name: _kind(column.type) | None for column in schema}
    kinds |= dict.fromkeys((known or frozenset()).difference(kinds), msgspec.Raw)
    fields = [
        (f"f{place}", kind, msgspec.field(name=name, default=None))
        for place, (name, kind) in enumerate(sorted(kinds.items(), key=lambda one: one[0]))
    ]
    return msgspec.defstruct("Typed", fields, forbid_unknown_fields=known is not None)


def _kind(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return typed(pa.schema(list(kind)))
    if pa.types.is_list(kind):
        return list[_kind(kind.value_type) | None]  # type: ignore[misc]
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_integer(kind):
        return _INT[kind.bit_width] | float | _NUMBER
    return int | float | _NUMBER


def fits(decoder: msgspec.json.Decoder[Any], text: bytes) -> bool:
    try:
        decoder.decode(text)
    except UNDECODABLE:
        return False
    return True


def misfits(decoder: msgspec.json.Decoder[Any], records: Sequence[bytes]) -> list[int]:
    """Return positions of records that do not fit, each tried alone.

    A loop: only for chunks with a bad record.
    """
    places = []
    decode = decoder.decode
    for position, record in enumerate(records):
        try:
            decode(record)
        except UNDECODABLE:
            places.append(position)
    return places
