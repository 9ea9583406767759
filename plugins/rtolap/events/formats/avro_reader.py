"""Avro records → rows, in lockstep (see `lockstep`): all records of one schema advance through it together.

The writer's schema says where each value stands; what a column needs of it is decided by the column's path
and type. A field that the schema lacks is null in all records. One that is of a type which the column cannot
take is refused in every record that has a value in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from rtolap.events.classify import Problem, Reason
from rtolap.events.formats.avro_resolution import UNITS, resolved
from rtolap.events.formats.columns import Path, RowBuilder, Wanted
from rtolap.events.formats.lockstep import Cursor, Records
from rtolap.events.formats.reader import Places, Problems
from rtolap.events.plan import JsonPlan
from rtolap.model.formats.avro_schema import AvroType

_DEPTH_MAX = 64  # of values inside of each other
_ITEMS_MAX = 65_536  # each is a step for all records
_SCALARS_OF_SIZE = {"boolean": 1, "float": 4, "double": 8}
_DECIMAL_BYTES = 16
_UTF8 = pa.string()


class AvroReader:
    """Reads records of a schema into the rows of one plan.

    Args:
        reader: the schema whose names the columns read; None: those of the records themselves.
    """

    def __init__(self, plan: JsonPlan, schema: AvroType, reader: AvroType | None = None) -> None:
        self._plan = plan
        self._schema = schema
        wanted = Wanted.of(plan)
        self._wanted = wanted if reader is None else resolved(wanted, schema, reader)
        known = None if plan.known is None else plan.known.union(self._wanted.fields)
        self._unknown = [name for name, _ in schema.fields if known is not None and name not in known]

    def read(
        self, records: list[bytes], places: Places, problems: Problems, *, skipped: int = 0
    ) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`. `skipped`: bytes before each record's value."""
        text = Records(records, skipped)
        builder = RowBuilder(self._plan, len(records))
        cursor = text.cursor()
        if self._unknown:
            problem = Problem("unknown_column", f"the table has no column for {self._unknown[0]!r}")
            builder.refuse(cursor.rows, problem)
        empty = text.starts == text.ends
        if empty.any() and self._schema.fields:
            builder.refuse(np.flatnonzero(empty), Problem("empty", "0 bytes without a value"))
        _Reading(builder).value(self._schema, cursor, self._wanted, 0)
        left = cursor.ends - cursor.at
        for row in np.flatnonzero(left).tolist():
            text.failures.setdefault(row, f"{left[row]} bytes are left behind its last field")
        for row, why in text.failures.items():
            builder.refuse(np.array([row]), Problem("malformed_avro", why))
        return builder.build(places, problems)


class _Reading:
    """One pass over some records of one schema."""

    def __init__(self, builder: RowBuilder) -> None:
        self._builder = builder

    def value(self, kind: AvroType, cursor: Cursor, wanted: Wanted | None, depth: int) -> None:
        """Read a value of each record, or pass over it where nothing of it is wanted."""
        if depth > _DEPTH_MAX:
            cursor.fail(np.ones(len(cursor), bool), f"more than {_DEPTH_MAX} values inside of each other")
        if not len(cursor) or kind.kind == "null":
            return
        match kind.kind:
            case "record":
                self._refused(wanted, cursor, kind)
                for name, child in kind.fields:
                    self.value(child, cursor, None if wanted is None else wanted.fields.get(name), depth + 1)
                self._put_constants(wanted, cursor)
            case "union":
                self._union(kind, cursor, wanted, depth)
            case "array" | "map":
                self._refused(wanted, cursor, kind, inside=True)
                self._items(kind, cursor, depth)
            case _:
                values = _SCALARS[kind.kind](kind, cursor, wanted is not None and wanted.path is not None)
                if wanted is None:
                    return
                if wanted.path is not None:
                    self._put(wanted.path, kind, cursor, values)
                for inner in wanted.paths():
                    self._refuse(inner, cursor, kind, "an object")

    def _put(self, path: Path, kind: AvroType, cursor: Cursor, values: pa.Array) -> None:
        """Hand values over; of records that have failed they mean nothing, and are left out."""
        rows, failed = cursor.rows, cursor.failed()
        if failed.any():
            rows, values = rows[~failed], values.filter(pa.array(~failed))
        if kind.kind == "string":
            self._builder.put_texts(path, rows, values)
        else:
            self._builder.put(path, rows, values)

    def _put_constants(self, wanted: Wanted | None, cursor: Cursor) -> None:
        if wanted is None or not wanted.constants:
            return
        rows = cursor.rows[~cursor.failed()]
        for path, value in wanted.constants:
            self._builder.put(path, rows, pa.repeat(value, len(rows)))

    def _refused(
        self, wanted: Wanted | None, cursor: Cursor, kind: AvroType, *, inside: bool = False
    ) -> None:
        """Refuse records with a value that holds others where a column wants a plain one. `inside`: nothing
        inside of it can be read either."""
        if wanted is None:
            return
        if wanted.path is not None:
            leaf = self._builder.leaves[wanted.path]
            detail = f"column {leaf.name}: expected {leaf.rounded or leaf.moment or leaf.type}, found {kind}"
            self._builder.refuse(cursor.rows, Problem("nested_value", detail))
        if inside:
            for path in wanted.paths():
                self._refuse(path, cursor, kind, "an object")

    def _refuse(self, path: Path, cursor: Cursor, kind: AvroType, expected: str) -> None:
        leaf = self._builder.leaves[path]
        detail = f"column {leaf.name}: expected {expected} at {'.'.join(path[:-1])}, found {kind}"
        reason: Reason = "invalid_time" if leaf.is_time else "wrong_type"
        self._builder.refuse(cursor.rows, Problem(reason, detail))

    def _union(self, kind: AvroType, cursor: Cursor, wanted: Wanted | None, depth: int) -> None:
        chosen = cursor.zigzag()
        cursor.fail(
            (chosen < 0) | (chosen >= len(kind.branches)),
            f"a branch that a union of {len(kind.branches)} lacks",
        )
        for number, branch in enumerate(kind.branches):
            which = chosen == number
            if branch.kind == "null" or not which.any():
                continue
            if which.all():
                self.value(branch, cursor, wanted, depth + 1)
                continue
            part = cursor.subset(which)
            self.value(branch, part, wanted, depth + 1)
            cursor.join(which, part)

    def _items(self, kind: AvroType, cursor: Cursor, depth: int) -> None:
        """Pass over arrays and maps: blocks of items, up to an empty one. A block may say its size."""
        assert kind.items is not None, "an array has a type of items"
        live = np.arange(len(cursor))
        while len(live):
            part = cursor.subset(live)
            counts = part.zigzag()
            sized = counts < 0
            if sized.any():
                blocks = part.subset(sized)
                blocks.blob(blocks.zigzag())
                part.join(sized, blocks)
            counted = np.flatnonzero(counts > 0)
            if len(counted):
                items = part.subset(counted)
                self._block(kind, items, counts[counted], depth)
                part.join(counted, items)
            cursor.join(live, part)
            live = live[(counts != 0) & ~part.failed()]

    def _block(self, kind: AvroType, cursor: Cursor, counts: Places, depth: int) -> None:
        assert kind.items is not None, "an array has a type of items"
        item = kind.items
        if kind.kind == "array":
            if item.kind == "null":
                return
            if item.kind in _SCALARS_OF_SIZE or item.kind == "fixed":
                size = item.size if item.kind == "fixed" else _SCALARS_OF_SIZE[item.kind]
                beyond = counts > (cursor.ends - cursor.at) // max(1, size)
                cursor.blob(np.where(beyond, -1, counts * size))
                return
            if item.kind in ("int", "long", "enum"):
                cursor.skip_varints(counts)
                return
        # An item takes a byte at least, or a record could claim any number of them.
        cursor.fail(counts > cursor.ends - cursor.at, "it ends too early")
        cursor.fail(counts > _ITEMS_MAX, f"more than {_ITEMS_MAX} items of type {item} in a block")
        live = np.flatnonzero(~cursor.failed())
        left = counts[live]
        while len(live):
            part = cursor.subset(live)
            if kind.kind == "map":
                part.blob(part.zigzag())
            self.value(item, part, None, depth + 1)
            cursor.join(live, part)
            left = left - 1
            goes_on = (left > 0) & ~part.failed()
            live, left = live[goes_on], left[goes_on]


def _boolean(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    octets = cursor.octets()
    cursor.fail(octets > 1, "a boolean that is neither 0 nor 1")
    return pa.array(octets == 1)


def _int(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = cursor.zigzag()
    narrow = numbers.astype(np.int32)
    cursor.fail(narrow != numbers, "an int of more than 32 bits")
    return pa.array(narrow).cast(pa.date32()) if kind.logical == "date" else pa.array(narrow)


def _long(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = pa.array(cursor.zigzag())
    if kind.logical is None:
        return numbers
    return numbers.cast(pa.timestamp(UNITS[kind.logical.rpartition("-")[2]]))


def _float(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return pa.array(cursor.word(4).astype(np.uint32).view(np.float32))


def _double(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return pa.array(cursor.word(8).view(np.float64))


def _bytes(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    lengths = cursor.zigzag()
    return _pieces(kind, cursor, lengths, wanted)


def _fixed(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return _pieces(kind, cursor, np.full(len(cursor), kind.size), wanted)


def _pieces(kind: AvroType, cursor: Cursor, lengths: Places, wanted: bool) -> pa.Array:
    begins = cursor.blob(lengths)
    if not wanted:
        return pa.nulls(0)
    if kind.logical == "decimal":
        return _decimals(kind, cursor, begins, lengths)
    return cursor.records.binary(begins, lengths)


def _decimals(kind: AvroType, cursor: Cursor, begins: Places, lengths: Places) -> pa.Array:
    """Return whole numbers in two's complement, the highest byte first, as decimals of the type's scale."""
    cursor.fail(lengths > _DECIMAL_BYTES, f"a decimal of more than {_DECIMAL_BYTES} bytes")
    text, ends = cursor.records.bytes, begins + lengths
    lengths = np.minimum(lengths, _DECIMAL_BYTES)
    at = ends[:, None] - 1 - np.arange(_DECIMAL_BYTES)  # of the lowest byte first, as Arrow has them
    low = text[np.maximum(at, 0)]
    sign = np.where((lengths > 0) & (text[np.maximum(ends - lengths, 0)] >= 0x80), 0xFF, 0).astype(np.uint8)
    low = np.where(np.arange(_DECIMAL_BYTES) < lengths[:, None], low, sign[:, None])
    return pa.Array.from_buffers(
        pa.decimal128(38, kind.scale), len(lengths), [None, pa.py_buffer(np.ascontiguousarray(low))]
    )


def _enum(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = cursor.zigzag()
    cursor.fail((numbers < 0) | (numbers >= len(kind.symbols)), f"a symbol that {kind} lacks")
    if not wanted:
        return pa.nulls(0)
    inside = np.clip(numbers, 0, max(0, len(kind.symbols) - 1))
    return (
        pa.array(kind.symbols, _UTF8).take(pa.array(inside)) if kind.symbols else pa.nulls(len(cursor), _UTF8)
    )


_Scalar = Callable[[AvroType, Cursor, bool], pa.Array]
_SCALARS: Mapping[str, _Scalar] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _bytes,
    "fixed": _fixed,
    "enum": _enum,
}
