"""Protobuf records → rows, in lockstep (see `lockstep`): a step reads the next field of every message.

A message is fields in any order, each with its number: what a step finds differs from record to record, and
is handled by number. Of a field that comes twice the last value counts, and parts of a message are joined, as
the format wants it. A field that is absent is null where the schema tells absent from default (`optional`,
messages, `oneof`), else its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from numpy.typing import NDArray

from rtolap.events.classify import Problem
from rtolap.events.formats.columns import Path, RowBuilder, Wanted
from rtolap.events.formats.lockstep import Cursor, Records
from rtolap.events.formats.protobuf_values import values_of, wire_type
from rtolap.events.formats.reader import Flags, Places, Problems
from rtolap.events.plan import JsonPlan

_DEPTH_MAX = 64
_FIELDS_MAX = 65_536  # of a message; each is a step for all records
_VARINT, _FIXED64, _FIXED32 = 0, 1, 5
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP = "google.protobuf.Timestamp"


@dataclass
class _Field:
    """What is read of a field, of all records.

    Attributes:
        raw: the value of a scalar; of a text where it begins.
        lengths: of texts.
        inside: of a message what is read of its fields.
        siblings: other fields of its `oneof`.
    """

    descriptor: FieldDescriptor
    path: Path | None
    seen: Flags
    raw: NDArray[np.uint64]
    lengths: Places
    inside: _Message | None = None
    siblings: tuple[int, ...] = ()

    @property
    def message_name(self) -> str:
        """Return the name of the message that the field is; of a scalar nothing."""
        message = self.descriptor.message_type
        return "" if message is None else str(message.full_name)


@dataclass
class _Message:
    fields: dict[int, _Field] = field(default_factory=dict)
    unread_members: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Descriptor, wanted: Wanted, rows: int, depth: int = 0) -> _Message:
        made = cls()
        for each in message.fields:
            inner = wanted.fields.get(each.name)
            if inner is None:
                continue
            made.fields[each.number] = _field_of(each, inner, rows, depth)
        for group in message.oneofs:
            members = [member.number for member in group.fields]
            read = tuple(number for number in members if number in made.fields)
            for number in members:
                others = tuple(other for other in read if other != number)
                if number in made.fields:
                    made.fields[number].siblings = others
                elif others:
                    made.unread_members[number] = others
        return made


def _field_of(each: FieldDescriptor, wanted: Wanted, rows: int, depth: int) -> _Field:
    made = _Field(
        each, wanted.path, np.zeros(rows, bool), np.zeros(rows, np.uint64), np.zeros(rows, np.int64)
    )
    if each.message_type is None or each.is_repeated or depth > _DEPTH_MAX:
        return made
    name = each.message_type.full_name
    if wanted.path is not None and name in _WRAPPERS:
        wanted = Wanted(fields={"value": Wanted(path=wanted.path)})
    elif wanted.path is not None and name == _TIMESTAMP:
        parts = {part: Wanted(path=(*wanted.path, part)) for part in ("seconds", "nanos")}
        wanted = Wanted(fields=parts)
    made.inside = _Message.of(each.message_type, wanted, rows, depth + 1)
    return made


class ProtobufReader:
    """Reads records of a message into the rows of one plan."""

    def __init__(self, plan: JsonPlan, message: Descriptor) -> None:
        self._plan = plan
        self._message = message
        self._wanted = Wanted.of(plan)
        self._known = (
            None
            if plan.known is None
            else {each.number for each in message.fields if each.name in plan.known}
        )

    def read(
        self, records: list[bytes], places: Places, problems: Problems, *, skipped: int | Places = 0
    ) -> tuple[pa.StructArray, Places]:
        """See `RecordReader`. `skipped`: bytes before each record's message."""
        text = Records(records, skipped)
        builder = RowBuilder(self._plan, len(records))
        empty = np.fromiter((not record for record in records), bool, len(records))
        if empty.any():
            builder.refuse(np.flatnonzero(empty), Problem("empty", "0 bytes without a value"))
        message = _Message.of(self._message, self._wanted, len(records))
        reading = _Reading(builder, text, self._known)
        reading.message(message, text.cursor(), 0)
        reading.put(message, np.ones(len(records), bool))
        for row, why in text.failures.items():
            builder.refuse(np.array([row]), Problem("malformed_protobuf", why))
        return builder.build(places, problems)


class _Reading:
    """One pass over some records of one message."""

    def __init__(self, builder: RowBuilder, text: Records, known: set[int] | None) -> None:
        self._builder = builder
        self._text = text
        self._known = known

    def message(self, message: _Message, cursor: Cursor, depth: int) -> None:
        """Read messages up to their ends, a field of each with every step."""
        if depth > _DEPTH_MAX:
            cursor.fail(np.ones(len(cursor), bool), f"more than {_DEPTH_MAX} messages inside of each other")
        live, steps = np.flatnonzero(cursor.at < cursor.ends), 0
        while len(live):
            part = cursor.subset(live)
            tags = part.varint()
            part.fail((tags >> np.uint64(3) == 0) | (tags >= 1 << 32), "a field without a number")
            for tag in np.unique(tags).tolist():
                which = tags == tag
                chosen = part if which.all() else part.subset(which)
                self._field(message, chosen, tag >> 3, tag & 7, depth)
                if chosen is not part:
                    part.join(which, chosen)
            steps += 1
            if steps > _FIELDS_MAX:
                part.fail(np.ones(len(part), bool), f"a message of more than {_FIELDS_MAX} fields")
            cursor.join(live, part)
            live = live[part.at < part.ends]

    def _field(self, message: _Message, cursor: Cursor, number: int, wire: int, depth: int) -> None:
        if depth == 0 and self._known is not None and number not in self._known:
            detail = f"the table has no column for field {number}"
            self._builder.refuse(cursor.rows, Problem("unknown_column", detail))
        found, rows = message.fields.get(number), cursor.rows
        for other in message.unread_members.get(number, ()) if found is None else found.siblings:
            message.fields[other].seen[rows] = False
        is_read = found is not None and (wire == wire_type(found.descriptor) or found.descriptor.is_repeated)
        match wire:
            case 0:
                values = cursor.varint()
            case 1 | 5:
                values = cursor.word(8 if wire == _FIXED64 else 4)
            case 2:
                lengths = cursor.varint().astype(np.int64)
                values = cursor.blob(lengths).view(np.uint64)
                if is_read and found is not None:
                    found.lengths[rows] = lengths
            case _:
                cursor.fail(
                    np.ones(len(cursor), bool), f"field {number} is a group, or of no type that there is"
                )
                return
        if found is None or not is_read:
            return
        found.seen[rows] = True
        found.raw[rows] = values
        if found.inside is not None:
            begins = values.view(np.int64)
            self.message(found.inside, Cursor(self._text, rows, begins.copy(), begins + lengths), depth + 1)

    def put(self, message: _Message, present: Flags) -> None:
        """Hand over what was read. `present`: records that have the message."""
        for each in message.fields.values():
            seen = each.seen & present
            if each.descriptor.is_repeated:
                self._refuse(each, seen, "nested_value", "a repeated field")
            elif each.inside is None:
                self._scalar(each, seen, present)
            elif each.path is not None and each.message_name == _TIMESTAMP:
                self._timestamp(each.path, each.inside, seen)
            else:
                if each.path is not None and each.message_name not in _WRAPPERS:
                    self._refuse(each, seen, "nested_value", f"message {each.message_name}")
                self.put(each.inside, seen)

    def _scalar(self, each: _Field, seen: Flags, present: Flags) -> None:
        if each.path is None:
            self._refuse(each, seen, "wrong_type", "a value without fields")
            return
        has = seen if each.descriptor.has_presence else present
        rows = self._sound(has)
        if not len(rows):
            return
        values = values_of(
            each.descriptor, self._builder.leaves[each.path], self._text, each.raw[rows], each.lengths[rows]
        )
        if each.descriptor.type == FieldDescriptor.TYPE_STRING:
            self._builder.put_texts(each.path, rows, values)
        else:
            self._builder.put(each.path, rows, values)

    def _timestamp(self, path: Path, parts: _Message, seen: Flags) -> None:
        rows = self._sound(seen)
        seconds, nanos = (parts.fields[number].raw[rows].view(np.int64) for number in (1, 2))
        micros = np.clip(seconds, -(1 << 42), 1 << 42) * 1_000_000 + nanos.astype(np.int32) // 1000
        self._builder.put(path, rows, pa.array(micros).cast(pa.timestamp("us")))

    def _sound(self, which: Flags) -> Places:
        """Return the records among these that have not failed: of others nothing means anything."""
        return np.flatnonzero(which & ~self._text.failed)

    def _refuse(self, each: _Field, which: Flags, reason: str, found: str) -> None:
        rows = self._sound(which)
        paths = [each.path] if each.path is not None else _paths_below(each, self._builder)
        for path in paths:
            leaf = self._builder.leaves[path]
            expected = leaf.rounded or leaf.moment or leaf.type if path == each.path else "a message"
            detail = f"column {leaf.name}: expected {expected}, found {found} {each.descriptor.name}"
            problem = Problem("nested_value" if reason == "nested_value" else "wrong_type", detail)
            self._builder.refuse(rows, problem)


def _paths_below(each: _Field, builder: RowBuilder) -> list[Path]:
    """Return the paths of the columns that are read below a field that holds nothing inside."""
    return [path for path in builder.leaves if each.descriptor.name in path[:-1]]
