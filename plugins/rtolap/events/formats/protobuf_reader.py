"""Protobuf records → rows, in lockstep (see `lockstep`): a step reads the next field of every message.

A message is fields in any order, each with its number: what a step finds differs from record to record, and
is handled by number. Of a field that comes twice the last value counts, and parts of a message are joined, as
the format wants it. A field that is absent is null where the schema tells absent from default (`optional`,
messages, `oneof`), else its default.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from numpy.typing import NDArray

from rtolap.events.classify import Problem
from rtolap.events.formats.columns import RowBuilder, Wanted
from rtolap.events.formats.lockstep import Cursor, Records
from rtolap.events.formats.protobuf_fields import DEPTH_MAX, Entries, Field, Items, Message
from rtolap.events.formats.protobuf_values import FIXED64, LENGTH, VARINT, values_of, wire_type
from rtolap.events.formats.reader import Flags, Places, Problems
from rtolap.events.plan import JsonPlan
from rtolap.model.formats.protobuf_set import is_map

_FIELDS_MAX = 65_536  # of a message; each is a step for all records
_UNCHECKED_MAX = 1_024  # steps whose items wait to be checked together


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
        message = Message.of(self._message, self._wanted, len(records))
        reading = _Reading(builder, text, self._known)
        reading.message(message, text.cursor(), 0)
        reading.put(message, np.ones(len(records), bool))
        for row, why in text.failures.items():
            builder.refuse(np.array([row]), Problem("malformed_protobuf", why))
        return builder.build(places, problems)


class _Reading:
    """A pass over some records of one message."""

    def __init__(self, builder: RowBuilder, text: Records, known: set[int] | None) -> None:
        self._builder = builder
        self._text = text
        self._known = known

    def message(self, message: Message, cursor: Cursor, depth: int) -> None:
        """Read messages up to their ends, a field of each with every step."""
        if depth > DEPTH_MAX:
            cursor.fail(np.ones(len(cursor), bool), f"more than {DEPTH_MAX} messages inside of each other")
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

    def _field(self, message: Message, cursor: Cursor, number: int, wire: int, depth: int) -> None:
        if depth == 0 and self._known is not None and number not in self._known:
            detail = f"the table has no column for field {number}"
            self._builder.refuse(cursor.rows, Problem("unknown_column", detail))
        found, rows = message.fields.get(number), cursor.rows
        for other in message.unread_members.get(number, ()) if found is None else found.siblings:
            message.fields[other].clear(rows)
        match wire:
            case 0:
                values, lengths = cursor.varint(), np.zeros(len(rows), np.int64)
            case 1 | 5:
                values, lengths = cursor.word(8 if wire == FIXED64 else 4), np.zeros(len(rows), np.int64)
            case 2:
                lengths = cursor.varint().astype(np.int64)
                values = cursor.blob(lengths).view(np.uint64)
            case _:
                cursor.fail(
                    np.ones(len(cursor), bool), f"field {number} is a group, or of no type that there is"
                )
                return
        if found is None or not found.takes(wire):
            return
        if found.entries is not None:
            self._entry(found.entries, rows, values, lengths, depth)
        elif found.items is None:
            self._take(found, rows, values, lengths, depth)
        elif wire == LENGTH and wire_type(found.descriptor) != LENGTH:
            self._packed(found.items, rows, values.view(np.int64), lengths)
        else:
            self._item(found.items, rows, values, lengths, depth)

    def _take(
        self, found: Field, rows: Places, values: NDArray[np.uint64], lengths: Places, depth: int
    ) -> None:
        """Take values of a field. The parts of a message are joined."""
        found.seen[rows] = True
        found.raw[rows] = values
        found.lengths[rows] = lengths
        if found.inside is not None:
            begins = values.view(np.int64)
            self.message(found.inside, Cursor(self._text, rows, begins.copy(), begins + lengths), depth + 1)

    def _item(
        self, items: Items, rows: Places, values: NDArray[np.uint64], lengths: Places, depth: int
    ) -> None:
        """Take the next item of each of these records."""
        positions = items.counts[rows]
        items.counts[rows] += 1
        for index, which in items.wanted.split(positions):
            chosen = rows[which], values[which], lengths[which]
            if index is not None:
                self._take(items.by_index[index], *chosen, depth)
            elif items.others.inside is None:
                items.unchecked.append(chosen)
                if len(items.unchecked) > _UNCHECKED_MAX:
                    self._check(items)
            else:
                self._take(items.others, *chosen, depth)
                self._put_field(items.others, items.others.seen)
                items.others.clear(chosen[0])

    def _packed(self, items: Items, rows: Places, begins: Places, lengths: Places) -> None:
        """Take items that stand one behind the other, all of them in a single step."""
        cursor = Cursor(self._text, rows, begins.copy(), begins + lengths)
        wire = wire_type(items.others.descriptor)
        stops, ends = self._text.last_bytes, cursor.ends
        first = np.searchsorted(stops, begins)
        if wire == VARINT:
            counts = np.searchsorted(stops, ends) - first
            cursor.fail((lengths > 0) & (self._text.bytes[ends - 1] >= 0x80), "it ends too early")
        else:
            size = 8 if wire == FIXED64 else 4
            counts = lengths // size
            cursor.fail(lengths % size != 0, "it ends too early")
        cursor.fail(counts > _FIELDS_MAX, f"a field of more than {_FIELDS_MAX} items")
        counts = np.where(cursor.failed(), 0, counts)
        record = np.repeat(np.arange(len(rows)), counts)
        number = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
        if wire == VARINT:
            at = np.where(number == 0, begins[record], stops[first[record] + number - 1] + 1)
            values = Cursor(self._text, rows[record], at, ends[record]).varint()
        else:
            at = begins[record] + number * size
            values = Cursor(self._text, rows[record], at, ends[record]).word(size)
        positions = items.counts[rows][record] + number
        items.counts[rows] += counts
        for index, which in items.wanted.split(positions):
            chosen = rows[record[which]], values[which], np.zeros(int(which.sum()), np.int64)
            if index is None:
                items.unchecked.append(chosen)
                self._check(items)
            else:
                self._take(items.by_index[index], *chosen, 0)

    def _entry(
        self, entries: Entries, rows: Places, values: NDArray[np.uint64], lengths: Places, depth: int
    ) -> None:
        """Take an entry of a map of each of these records. Of a key that comes twice the last value
        counts; a key or value that is absent is the default."""
        for each in entries.entry.fields.values():
            each.clear(rows)
        begins = values.view(np.int64)
        self.message(entries.entry, Cursor(self._text, rows, begins.copy(), begins + lengths), depth + 1)
        for has_key, found in entries.by_key:
            hits = rows[has_key(self._text, rows)]
            if len(hits):
                found.clear(hits)
                self._take(found, hits, entries.value.raw[hits], entries.value.lengths[hits], depth + 1)

    def put(self, message: Message, present: Flags) -> None:
        """Hand over what was read. `present`: records that have the message."""
        for each in message.fields.values():
            self._put_field(each, present)

    def _put_field(self, each: Field, present: Flags) -> None:
        seen, wanted = each.seen & present, each.wanted
        if each.items is not None:
            for item in each.items.by_index.values():
                self._put_field(item, present)
            self._check(each.items)
        elif each.entries is not None:
            for _, value in each.entries.by_key:
                self._put_field(value, present)
        elif each.descriptor.is_repeated and not each.is_item:
            self._refuse(each, seen, "a map" if is_map(each.descriptor) else "a repeated field")
        elif each.inside is None:
            if wanted.is_value:
                self._scalar(each, seen if each.descriptor.has_presence or each.is_item else present)
            else:
                self._refuse(each, seen, "a value without fields")
        elif each.is_timestamp:
            self._timestamp(each, each.inside, seen)
        else:
            if not each.is_wrapper or not wanted.is_value:
                self._refuse(each, seen, f"message {each.message_name}", fields=True)
            self.put(each.inside, seen)

    def _scalar(self, each: Field, has: Flags) -> None:
        rows = self._sound(has)
        if len(rows):
            self._hand_over(each, rows, each.raw[rows], each.lengths[rows])

    def _check(self, items: Items) -> None:
        """Check the types of items that no column reads."""
        if not items.unchecked:
            return
        rows, raw, lengths = (np.concatenate(each) for each in zip(*items.unchecked, strict=True))
        items.unchecked.clear()
        sound = ~self._text.failed[rows]
        if not items.others.wanted.is_value:
            self._builder.refuse_inside(items.others.wanted, np.unique(rows[sound]), "a value without fields")
        elif sound.any():
            self._hand_over(items.others, rows[sound], raw[sound], lengths[sound])

    def _hand_over(self, each: Field, rows: Places, raw: NDArray[np.uint64], lengths: Places) -> None:
        path = each.wanted.path
        read = [] if path is None else [self._builder.leaves[path]]
        for place, leaf in enumerate((*read, *each.wanted.checks)):
            values, at = values_of(each.descriptor, leaf, self._text, raw, lengths), rows
            if each.descriptor.type == FieldDescriptor.TYPE_STRING:
                at, values = self._builder.texts(leaf, rows, values)
            if place < len(read) and path is not None:
                self._builder.put(path, at, values)
            else:
                self._builder.check(leaf, at, values)

    def _timestamp(self, each: Field, parts: Message, seen: Flags) -> None:
        rows, wanted = self._sound(seen), each.wanted
        seconds, nanos = (parts.fields[number].raw[rows].view(np.int64) for number in (1, 2))
        micros = np.clip(seconds, -(1 << 42), 1 << 42) * 1_000_000 + nanos.astype(np.int32) // 1000
        values = pa.array(micros).cast(pa.timestamp("us"))
        if wanted.path is not None:
            self._builder.put(wanted.path, rows, values)
        for leaf in wanted.checks:
            self._builder.check(leaf, rows, values)

    def _sound(self, which: Flags) -> Places:
        """Return the records among these that have not failed: of others nothing means anything."""
        return np.flatnonzero(which & ~self._text.failed)

    def _refuse(self, each: Field, which: Flags, found: str, *, fields: bool = False) -> None:
        """Refuse records with a field that is no plain value, or has nothing of what is wanted inside."""
        rows, found = self._sound(which), f"{found} {each.descriptor.name}"
        if each.inside is not None or each.descriptor.is_repeated:
            self._builder.refuse_value(each.wanted, rows, found)
        self._builder.refuse_inside(each.wanted, rows, found, fields=fields)
