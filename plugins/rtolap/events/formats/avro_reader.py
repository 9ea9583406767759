"""Avro records → rows, in lockstep (see `lockstep`): all records of one schema advance through it together.

The writer's schema says where each value stands; what a column needs of it is decided by the column's path
and type. A field that the schema lacks is null in all records. One that is of a type which the column cannot
take is refused in every record that has a value in it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from rtolap.events.classify import Problem
from rtolap.events.formats.avro_resolution import resolved
from rtolap.events.formats.avro_scalars import SCALARS
from rtolap.events.formats.columns import RowBuilder, Wanted
from rtolap.events.formats.lockstep import Cursor, Records
from rtolap.events.formats.reader import Flags, Places, Problems
from rtolap.events.plan import JsonPlan
from rtolap.model.formats.avro_schema import AvroType

_DEPTH_MAX = 64  # of values inside of each other
_ITEMS_MAX = 65_536  # each is a step for all records
_COUNT_MAX = (1 << 63) - 1
_SCALARS_OF_SIZE = {"boolean": 1, "float": 4, "double": 8}


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
    """A pass over some records of one schema."""

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
                self._refused(wanted, cursor, kind, fields=True)
                for name, child in kind.fields:
                    self.value(child, cursor, None if wanted is None else wanted.fields.get(name), depth + 1)
                self._put_constants(wanted, cursor)
            case "union":
                self._union(kind, cursor, wanted, depth)
            case "array":
                self._refused(wanted, cursor, kind, items=True)
                self._items(kind, cursor, None if wanted is None or wanted.items is None else wanted, depth)
            case "map":
                self._refused(wanted, cursor, kind, fields=True)
                self._items(kind, cursor, None if wanted is None or not wanted.fields else wanted, depth)
            case _:
                values = SCALARS[kind.kind](kind, cursor, wanted is not None and wanted.is_value)
                if wanted is None:
                    return
                if wanted.is_value:
                    self._put(wanted, kind, cursor, values)
                self._builder.refuse_inside(wanted, cursor.rows, kind)

    def _put(self, wanted: Wanted, kind: AvroType, cursor: Cursor, values: pa.Array) -> None:
        """Hand values over; of records that have failed they mean nothing, and are left out."""
        rows, failed = cursor.rows, cursor.failed()
        if failed.any():
            rows, values = rows[~failed], values.filter(pa.array(~failed))
        if kind.kind == "string":
            leaf = wanted.checks[0] if wanted.path is None else self._builder.leaves[wanted.path]
            rows, values = self._builder.texts(leaf, rows, values)
        if wanted.path is not None:
            self._builder.put(wanted.path, rows, values)
        for leaf in wanted.checks:
            self._builder.check(leaf, rows, values)

    def _put_constants(self, wanted: Wanted | None, cursor: Cursor) -> None:
        if wanted is None or not wanted.constants:
            return
        rows = cursor.rows[~cursor.failed()]
        for path, value in wanted.constants:
            self._builder.put(path, rows, pa.repeat(value, len(rows)))

    def _refused(
        self,
        wanted: Wanted | None,
        cursor: Cursor,
        kind: AvroType,
        *,
        fields: bool = False,
        items: bool = False,
    ) -> None:
        """Refuse records with a value that holds others where a column wants a plain one. `fields`, `items`:
        what can be read inside of it."""
        if wanted is not None:
            self._builder.refuse_value(wanted, cursor.rows, kind)
            self._builder.refuse_inside(wanted, cursor.rows, kind, fields=fields, items=items)

    def _union(self, kind: AvroType, cursor: Cursor, wanted: Wanted | None, depth: int) -> None:
        chosen = cursor.zigzag()
        cursor.fail(
            (chosen < 0) | (chosen >= len(kind.branches)),
            f"a branch that a union of {len(kind.branches)} lacks",
        )
        for number, branch in enumerate(kind.branches):
            which = chosen == number
            if branch.kind != "null" and which.any():
                self._part(branch, cursor, which, wanted, depth)

    def _items(self, kind: AvroType, cursor: Cursor, wanted: Wanted | None, depth: int) -> None:
        """Read arrays and maps: blocks of items, up to an empty one. A block may say its size; where nothing
        of it is wanted, it is passed over."""
        live = np.arange(len(cursor))
        before = np.zeros(len(cursor), np.int64)  # items in earlier blocks
        keys = {name: np.zeros(len(cursor.records), bool) for name in wanted.fields} if wanted else {}
        while len(live):
            part = cursor.subset(live)
            counts = part.zigzag()
            sized = np.flatnonzero(counts < 0)
            ends = np.full(len(live), -1, np.int64)
            if len(sized):
                blocks = part.subset(sized)
                sizes = blocks.zigzag()
                begins = blocks.blob(sizes)
                if wanted is not None:
                    ends[sized] = np.where(blocks.failed(), -1, begins + sizes)
                    blocks.at = np.where(blocks.failed(), blocks.at, begins)
                part.join(sized, blocks)
                if wanted is not None:
                    counts = np.where(counts < 0, -np.maximum(counts, -_COUNT_MAX), counts)
            counted = np.flatnonzero((counts > 0) & ~part.failed())
            if len(counted):
                items = part.subset(counted)
                if wanted is None:
                    self._unread_block(kind, items, counts[counted], depth)
                else:
                    self._block(kind, items, counts[counted], before[live[counted]], keys, wanted, depth)
                part.join(counted, items)
                before[live[counted]] += counts[counted]
            part.fail(
                (ends >= 0) & (part.at != ends) & ~part.failed(), "a block of another size than it says"
            )
            cursor.join(live, part)
            live = live[(counts != 0) & ~part.failed()]

    def _unread_block(self, kind: AvroType, cursor: Cursor, counts: Places, depth: int) -> None:
        """Pass over the items of a block, those of numbers in a single step."""
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
        self._block(kind, cursor, counts, np.zeros_like(counts), {}, None, depth)

    def _block(
        self,
        kind: AvroType,
        cursor: Cursor,
        counts: Places,
        before: Places,
        keys: Mapping[str, Flags],
        wanted: Wanted | None,
        depth: int,
    ) -> None:
        """Read the items of a block, one of each record with every step. `before`: items in earlier blocks;
        `keys`: by key, the records that had it already."""
        assert kind.items is not None, "an array has a type of items"
        item = kind.items
        if kind.kind == "array" and item.kind == "null":
            return
        # An item takes a byte at least, or a record could claim any number of them.
        cursor.fail(counts > cursor.ends - cursor.at, "it ends too early")
        cursor.fail(counts > _ITEMS_MAX, f"more than {_ITEMS_MAX} items of type {item} in a block")
        live = np.flatnonzero(~cursor.failed())
        left, step = counts[live], 0
        while len(live):
            part = cursor.subset(live)
            if kind.kind == "map":
                lengths = part.zigzag()
                begins = part.blob(lengths)
                self._entry(item, part, begins, lengths, keys, wanted, depth)
            elif wanted is None or wanted.items is None:
                self.value(item, part, None, depth + 1)
            else:
                for index, which in wanted.items.split(before[live] + step):
                    self._part(item, part, which, wanted.items.at(index), depth)
            cursor.join(live, part)
            left, step = left - 1, step + 1
            goes_on = (left > 0) & ~part.failed()
            live, left = live[goes_on], left[goes_on]

    def _entry(
        self,
        item: AvroType,
        cursor: Cursor,
        begins: Places,
        lengths: Places,
        keys: Mapping[str, Flags],
        wanted: Wanted | None,
        depth: int,
    ) -> None:
        """Read the values of a map whose keys were read. Of a key that comes twice the last value counts."""
        unread = np.ones(len(cursor), bool)
        for name, had in keys.items():
            which = cursor.records.equal(begins, lengths, name.encode()) & ~cursor.failed()
            if wanted is None or not which.any():
                continue
            inner, rows = wanted.fields[name], cursor.rows[which]
            if had[rows].any():
                for path in inner.all_paths():
                    self._builder.put_nothing(path, rows[had[rows]])
            had[rows] = True
            unread &= ~which
            self._part(item, cursor, which, inner, depth)
        if unread.any():
            self._part(item, cursor, unread, None, depth)

    def _part(self, kind: AvroType, cursor: Cursor, which: Flags, wanted: Wanted | None, depth: int) -> None:
        """Read a value of some of the records."""
        if which.all():
            self.value(kind, cursor, wanted, depth + 1)
            return
        part = cursor.subset(which)
        self.value(kind, part, wanted, depth + 1)
        cursor.join(which, part)
