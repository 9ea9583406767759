"""Fields of messages as they are read, of all records at once, until they are handed over as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from numpy.typing import NDArray

from rtolap.events.formats.columns import Wanted, WantedItems
from rtolap.events.formats.lockstep import Records
from rtolap.events.formats.protobuf_values import LENGTH, number_values, wire_type
from rtolap.events.formats.reader import Flags, Places
from rtolap.model.formats.protobuf_set import TIMESTAMP, WRAPPERS, is_map, key_number

DEPTH_MAX = 64
_KEY, _VALUE = 1, 2


@dataclass
class Field:
    """The values of a field, or of an item of a repeated one, of all records.

    Attributes:
        raw: the value of a scalar; of a text or a message where it begins.
        lengths: of texts and messages.
        is_item: the field is an item or the value of a map: one that was seen is there.
        inside: of a message what is read of its fields.
        items: of a repeated field.
        entries: of a map.
        siblings: other fields of its `oneof`.
    """

    descriptor: FieldDescriptor
    wanted: Wanted
    seen: Flags
    raw: NDArray[np.uint64]
    lengths: Places
    is_item: bool = False
    inside: Message | None = None
    items: Items | None = None
    entries: Entries | None = None
    siblings: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, descriptor: FieldDescriptor, wanted: Wanted, rows: int, depth: int, *, is_item: bool = False
    ) -> Field:
        made = cls.plain(descriptor, wanted, rows, is_item=is_item)
        message = descriptor.message_type
        if depth > DEPTH_MAX:
            return made
        if message is not None and is_map(descriptor) and not is_item:
            made.entries = Entries.of(message, wanted, rows, depth) if wanted.fields else None
        elif descriptor.is_repeated and not is_item:
            made.items = None if wanted.items is None else Items.of(descriptor, wanted.items, rows, depth)
        elif message is not None:
            made.inside = Message.of(message, _of_well_known(message.full_name, wanted), rows, depth + 1)
        return made

    @classmethod
    def plain(cls, descriptor: FieldDescriptor, wanted: Wanted, rows: int, *, is_item: bool = False) -> Field:
        """Return a field of which nothing inside is read."""
        zeros = np.zeros(rows, np.uint64), np.zeros(rows, np.int64)
        return cls(descriptor, wanted, np.zeros(rows, bool), *zeros, is_item)

    @property
    def is_timestamp(self) -> bool:
        return self.wanted.is_value and self.message_name == TIMESTAMP

    @property
    def is_wrapper(self) -> bool:
        return self.message_name in WRAPPERS

    @property
    def message_name(self) -> str:
        message = self.descriptor.message_type
        return "" if message is None else str(message.full_name)

    def takes(self, wire: int) -> bool:
        """Return whether a value that stands in a record like this is one of the field."""
        if self.items is not None and wire == LENGTH:
            return True  # packed
        is_refused = self.descriptor.is_repeated and not self.is_item and self.entries is None
        return wire == wire_type(self.descriptor) or (is_refused and self.items is None)

    def clear(self, rows: Places) -> None:
        """Forget what was read of these records."""
        self.seen[rows] = False
        self.raw[rows] = 0
        self.lengths[rows] = 0
        inner = [] if self.inside is None else list(self.inside.fields.values())
        if self.items is not None:
            self.items.counts[rows] = 0
            inner += self.items.by_index.values()
        if self.entries is not None:
            inner += [each for _, each in self.entries.by_key]
        for each in inner:
            each.clear(rows)


@dataclass
class Message:
    """The fields of a message that are read, by number.

    Attributes:
        unread_members: by members of a `oneof` that are not read, those that are.
    """

    fields: dict[int, Field] = field(default_factory=dict)
    unread_members: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Descriptor, wanted: Wanted, rows: int, depth: int = 0) -> Message:
        made = cls()
        for each in message.fields:
            inner = wanted.fields.get(each.name)
            if inner is not None:
                made.fields[each.number] = Field.of(each, inner, rows, depth)
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


@dataclass
class Items:
    """The items of a repeated field that are read.

    Attributes:
        counts: items that each record has had so far.
        others: an item that no column reads. It is checked, and then makes room for the next one.
        unchecked: rows, values and lengths of scalars that no column reads.
    """

    wanted: WantedItems
    counts: Places
    by_index: dict[int, Field]
    others: Field
    unchecked: list[tuple[Places, NDArray[np.uint64], Places]] = field(default_factory=list)

    @classmethod
    def of(cls, descriptor: FieldDescriptor, wanted: WantedItems, rows: int, depth: int) -> Items:
        by_index = {
            at: Field.of(descriptor, inner, rows, depth, is_item=True)
            for at, inner in wanted.by_index.items()
        }
        others = Field.of(descriptor, wanted.others, rows, depth, is_item=True)
        return cls(wanted, np.zeros(rows, np.int64), by_index, others)


@dataclass
class Entries:
    """The entries of a map that are read.

    Attributes:
        entry: key and value of one entry, which makes room for the next one.
        by_key: the values that columns read, and which records have their key in `entry`.
    """

    entry: Message
    by_key: list[tuple[Callable[[Records, Places], Flags], Field]]

    @classmethod
    def of(cls, message: Descriptor, wanted: Wanted, rows: int, depth: int) -> Entries:
        key, value = message.fields_by_number[_KEY], message.fields_by_number[_VALUE]
        read = Field.plain(key, Wanted(), rows)
        entry = Message({_KEY: read, _VALUE: Field.plain(value, Wanted(), rows)})
        by_key = [
            (_has_key(read, name), Field.of(value, inner, rows, depth, is_item=True))
            for name, inner in wanted.fields.items()
        ]
        return cls(entry, by_key)

    @property
    def value(self) -> Field:
        return self.entry.fields[_VALUE]


def _has_key(key: Field, name: str) -> Callable[[Records, Places], Flags]:
    """Return a function that says which records have the key, as JSON would write it."""
    if key.descriptor.type == FieldDescriptor.TYPE_STRING:
        octets = name.encode()
        return lambda text, rows: text.equal(key.raw[rows].view(np.int64), key.lengths[rows], octets)
    number = key_number(key.descriptor, name)
    if number is None:
        return lambda text, rows: np.zeros(len(rows), bool)
    wanted = number
    return lambda text, rows: np.asarray(number_values(key.descriptor, key.raw[rows]) == wanted)


def _of_well_known(name: str, wanted: Wanted) -> Wanted:
    """Return what is wanted inside of a message that stands for a plain value."""
    if not wanted.is_value:
        return wanted
    if name in WRAPPERS:
        return Wanted(fields={"value": Wanted(wanted.path, checks=wanted.checks, depth=wanted.depth)})
    if name == TIMESTAMP:
        return Wanted(fields={part: Wanted(path=(part,)) for part in ("seconds", "nanos")})
    return wanted
