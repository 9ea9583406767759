"""Protobuf: types, presence, parts of messages, registries; judged by the library of its makers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.column_types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, ColumnType, decimal
from rtolap.events.classify import Leaf
from rtolap.events.event_time import EventTimeParser
from rtolap.events.formats.protobuf_reader import ProtobufReader
from rtolap.events.formats.protobuf_types import file_of_schema, message_at
from rtolap.events.plan import JsonPlan
from rtolap.events.rows import at_path
from rtolap.kafka.schema_registry import Reference, RegisteredSchema
from rtolap.model.formats.protobuf_set import message_of_set

from tests.events.formats.conftest import decoded, decoder_of
from tests.events.formats.test_contract import FULL, drawn
from tests.support.formats.declared import KnownSchemas, formats, protobuf_value
from tests.support.formats.protobuf import (
    Field,
    add_message,
    descriptor,
    descriptor_set,
    event_file,
    message_class,
    proto_file,
)
from tests.support.seeds import so_many

ISO = EventTimeParser("iso8601", "UTC")


def leaf(name: str, kind: ColumnType) -> Leaf:
    path = tuple(name.split("."))
    if kind == TIMESTAMP:
        return Leaf(name, path, STRING, False, moment=kind, times=ISO)
    return Leaf(name, path, kind, False)


def read(
    schema: str, message: str, records: Sequence[bytes], *leaves: Leaf
) -> tuple[pa.StructArray, dict[int, Any]]:
    problems: dict[int, Any] = {}
    reader = ProtobufReader(JsonPlan(leaves, None), message_of_set(schema, message))
    rows, _ = reader.read(list(records), np.arange(len(records)), problems)
    return rows, problems


KINDS: list[tuple[str, ColumnType, Any]] = [
    ("int32", INT, -5),
    ("int32", BIGINT, -(1 << 31)),
    ("int64", BIGINT, -(1 << 63)),
    ("uint32", BIGINT, (1 << 32) - 1),
    ("uint64", decimal(20, 0), (1 << 64) - 1),
    ("sint32", INT, -(1 << 31)),
    ("sint64", BIGINT, (1 << 63) - 1),
    ("fixed32", BIGINT, (1 << 32) - 1),
    ("fixed64", decimal(20, 0), (1 << 64) - 1),
    ("sfixed32", INT, -7),
    ("sfixed64", BIGINT, -7),
    ("float", DOUBLE, 0.5),
    ("double", DOUBLE, -1e300),
    ("bool", BOOLEAN, True),
    ("string", STRING, "\u00e9"),
    ("string", decimal(6, 2), "1.25"),
]


@pytest.mark.parametrize(("kind", "column", "value"), KINDS)
@pytest.mark.parametrize("presence", [True, False])
def test_every_scalar_is_read_and_absent_is_null_or_the_default(
    kind: str, column: ColumnType, value: Any, presence: bool
) -> None:
    file = proto_file()
    add_message(file, "M", [("pad", "bool"), ("v", kind)], presence=presence)
    made = message_class("test.M", file)
    records = [made(pad=True, v=value).SerializeToString(), made(pad=True).SerializeToString()]
    rows, problems = read(descriptor_set(file), "test.M", records, leaf("v", column))
    found = at_path(rows, ("v",)).to_pylist()
    if presence or column == decimal(6, 2):
        assert problems == {} or not presence
        assert found[0] in (value, made(v=value).v) or str(found[0]) == value
        assert found[1:] in ([None], [])
    else:
        assert problems == {}
        assert found == [value, made().v]


def test_a_number_beyond_the_column_is_refused_alone() -> None:
    file = proto_file()
    add_message(file, "M", [("v", "uint64")])
    made = message_class("test.M", file)
    records = [made(v=number).SerializeToString() for number in (1, 1 << 63, (1 << 63) - 1)]
    rows, problems = read(descriptor_set(file), "test.M", records, leaf("v", BIGINT))
    assert {place: problem.reason for place, problem in problems.items()} == {1: "wrong_type"}
    assert at_path(rows, ("v",)).to_pylist() == [1, (1 << 63) - 1]


def test_names_of_an_enum_are_texts_and_its_numbers_are_numbers() -> None:
    file = proto_file()
    message = add_message(file, "M", [("pad", "bool")])
    kinds = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "BIG", "SMALL")):
        kinds.value.add(name=name, number=number * 10)
    message.field.add(
        name="v", number=2, label=Field.LABEL_OPTIONAL, type=Field.TYPE_ENUM, type_name=".test.Kind"
    )
    records = [b"\x08\1\x10\x14", b"\x08\1\x10\x63", b"\x08\1"]
    rows, problems = read(descriptor_set(file), "test.M", records, leaf("v", STRING))
    assert problems == {}
    assert at_path(rows, ("v",)).to_pylist() == ["SMALL", "99", "NONE"]
    rows, _ = read(descriptor_set(file), "test.M", records, leaf("v", INT))
    assert at_path(rows, ("v",)).to_pylist() == [20, 99, 0]


def test_wrappers_and_timestamps_are_values() -> None:
    imports = ("google/protobuf/wrappers.proto", "google/protobuf/timestamp.proto")
    file = proto_file("test.proto", *imports)
    fields = [("pad", "bool"), ("w", ".google.protobuf.Int64Value"), ("t", ".google.protobuf.Timestamp")]
    add_message(file, "M", fields)
    wrapped = wrappers_pb2.Int64Value(value=-3).SerializeToString()
    records = [
        b"\x08\1\x12" + bytes([len(wrapped)]) + wrapped + b"\x1a\x05\x08\x02\x10\xc0\x3e",
        b"\x08\1\x12\0\x1a\0",
        b"\x08\1",
    ]
    leaves = (leaf("w", BIGINT), leaf("t", TIMESTAMP))
    rows, problems = read(descriptor_set(file), "test.M", records, *leaves)
    assert problems == {}
    assert at_path(rows, ("w",)).to_pylist() == [-3, 0, None]
    assert at_path(rows, ("t",)).to_pylist() == [
        datetime(1970, 1, 1, 0, 0, 2, 8),
        datetime(1970, 1, 1),
        None,
    ]


def test_the_last_value_counts_parts_of_a_message_are_joined_and_a_oneof_has_one_value() -> None:
    file = proto_file()
    message = add_message(file, "M", [("v", "int64"), ("in", ".test.I")], presence=False)
    add_message(file, "I", [("a", "int64"), ("b", "int64")])
    for number, name in ((3, "left"), (4, "right"), (5, "unread")):
        message.field.add(
            name=name,
            number=number,
            label=Field.LABEL_OPTIONAL,
            type=Field.TYPE_INT64,
            oneof_index=len(message.oneof_decl),
        )
    message.oneof_decl.add(name="side")
    made = message_class("test.M", file)
    records = [
        b"\x08\x05\x08\x06",
        b"\x12\x02\x08\x01\x12\x02\x10\x02\x12\x02\x08\x03",
        b"\x18\x07\x20\x08",
        b"\x18\x07\x28\x08",
        b"\x28\x08\x18\x07",
    ]
    names = ("v", "in.a", "in.b", "left", "right")
    rows, problems = read(descriptor_set(file), "test.M", records, *(leaf(name, BIGINT) for name in names))
    assert problems == {}
    found = [at_path(rows, tuple(name.split("."))).to_pylist() for name in names]
    for number, record in enumerate(records):
        judged: Any = made.FromString(record)
        inside = getattr(judged, "in")
        expected = [
            judged.v,
            inside.a if inside.HasField("a") else None,
            inside.b if inside.HasField("b") else None,
            judged.left if judged.HasField("left") else None,
            judged.right if judged.HasField("right") else None,
        ]
        assert [column[number] for column in found] == expected, record


def test_repeated_fields_and_messages_are_no_values_and_values_are_no_messages() -> None:
    schema, value = descriptor_set(event_file()), protobuf_value(FULL)
    for name, reason in (("unread", "nested_value"), ("outer", "nested_value"), ("s.inside", "wrong_type")):
        _, problems = read(schema, "test.Event", [value], leaf(name, STRING))
        assert problems[0].reason == reason
        assert "expected" in problems[0].detail


def test_a_field_that_the_message_lacks_is_null() -> None:
    value = protobuf_value(FULL)
    rows, problems = read(descriptor_set(event_file()), "test.Event", [value], leaf("later", STRING))
    assert problems == {}
    assert at_path(rows, ("later",)).to_pylist() == [None]


def test_a_schema_of_a_registry_may_build_on_others() -> None:
    shared, main = proto_file("shared.proto"), proto_file("main.proto", "shared.proto")
    add_message(shared, "Money", [("cents", "int64")])
    add_message(main, "Order", [("price", ".test.Money")])
    known = {"shared": RegisteredSchema(descriptor(shared), "PROTOBUF")}
    registered = RegisteredSchema(
        descriptor(main), "PROTOBUF", references=(Reference("shared.proto", "shared", 1),)
    )
    file = file_of_schema(registered, lambda reference: known[reference.subject])
    assert message_at(file, [0]).full_name == "test.Order"
    with pytest.raises(NotFound, match="position 1"):
        message_at(file, [1])
    with pytest.raises(DefinitionError, match=r"a file is missing; expected shared\.proto"):
        file_of_schema(RegisteredSchema(descriptor(main), "PROTOBUF"), KnownSchemas({}).referenced)


@pytest.mark.parametrize("schema", ["AAAA", "!", descriptor_set(proto_file())])
def test_descriptors_without_the_message_are_refused(schema: str) -> None:
    with pytest.raises(DefinitionError, match="expected"):
        message_of_set(schema, "test.Event")


_REFUSED_HERE = (
    "group",  # they are out of use, and nothing of one is read
    "more than 64 bits",  # the library drops what is too much
    "expected double, found",  # infinite, or no number: no value of a column
)


def judges_file() -> FileDescriptorProto:
    """Return the file without texts and messages that no column reads: the library would look inside."""
    file = event_file()
    for field in file.message_type[1].field:
        if field.name in ("unread", "d", "day", "at", "numbers"):
            field.type = Field.TYPE_BYTES
            field.ClearField("type_name")
    return file


def judged(kind: type[Message], record: bytes) -> dict[str, Any] | None:
    """Return what the makers' library reads; None where it refuses the record."""
    try:
        found: Any = kind.FromString(record)
    except DecodeError:
        return None
    names = ("s", "i", "b", "f", "ok")
    values = {name: getattr(found, name) if found.HasField(name) else None for name in names}
    inside = found.outer.inner
    return values | {"outer.inner.n": inside.n if inside.HasField("n") else None}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_records_with_changed_bytes_are_read_as_the_makers_library_reads_them(seed: int) -> None:
    source = random.Random(seed)
    kind, schema = message_class("test.Event", judges_file()), descriptor_set(event_file())
    columns = {"s": STRING, "i": INT, "b": BIGINT, "f": DOUBLE, "ok": BOOLEAN, "outer.inner.n": INT}
    records = []
    for _ in range(600):
        record = bytearray(protobuf_value(drawn(source)))
        for _ in range(source.randrange(3)):
            place = source.randrange(len(record))
            match source.randrange(4):
                case 0:
                    del record[place:]
                case 1:
                    record[place] = source.randrange(256)
                case 2:
                    record[place:place] = source.randbytes(2)
                case _:
                    record += record[place:]
            if not record:
                break
        records.append(bytes(record or b"\x08\1"))
    reader = ProtobufReader(
        JsonPlan(tuple(leaf(name, column) for name, column in columns.items()), None),
        message_of_set(schema, "test.Event"),
    )
    problems: dict[int, Any] = {}
    rows, places = reader.read(records, np.arange(len(records)), problems)
    read_values = zip(*(at_path(rows, tuple(name.split("."))).to_pylist() for name in columns), strict=True)
    accepted = dict(zip(places.tolist(), read_values, strict=True))
    refused = 0
    for place, record in enumerate(records):
        expected = judged(kind, record)
        if place in problems:
            refused += 1
            reason = problems[place]
            lenient = any(each in reason.detail for each in _REFUSED_HERE)
            assert expected is None or lenient, (record.hex(), reason)
        else:
            assert expected is not None, record.hex()
            assert accepted[place] == tuple(expected.values()), record.hex()
    assert refused > 20
    assert len(accepted) > 200


def test_a_message_of_another_name_is_refused_where_the_table_names_one() -> None:
    declared = next(each for each in formats() if each.name == "protobuf of a registry")
    for message, reasons in (("test.Event", []), ("test.Other", ["unknown_schema"])):
        form = msgspec.structs.replace(declared.form, message=message)
        found = decoded(decoder_of(declared, format=form), [declared.encode(FULL)])
        assert found.rejects.reason == reasons
