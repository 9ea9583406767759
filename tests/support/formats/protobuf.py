"""Messages of Protobuf made in tests, written by the library of its makers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from tests.support.formats.avro import zigzag

Field = FieldDescriptorProto
TYPES: Mapping[str, FieldDescriptorProto.Type.ValueType] = {
    name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()
}


def add_message(
    to: FileDescriptorProto | descriptor_pb2.DescriptorProto,
    name: str,
    fields: Sequence[tuple[str, str]],
    *,
    presence: bool = True,
) -> descriptor_pb2.DescriptorProto:
    """Add a message with fields as (name, type), numbered from 1.

    A type is a scalar's, or a message's as `.package.Name`, or of many `repeated TYPE`. `presence`: scalars
    are `optional`.
    """
    inside = to.nested_type if isinstance(to, descriptor_pb2.DescriptorProto) else to.message_type
    made = inside.add(name=name)
    for number, (each, kind) in enumerate(fields, 1):
        added = made.field.add(name=each, number=number, label=Field.LABEL_OPTIONAL)
        if kind.startswith("repeated "):
            added.label, kind = Field.LABEL_REPEATED, kind.removeprefix("repeated ")
        if kind.startswith("."):
            added.type, added.type_name = Field.TYPE_MESSAGE, kind
        else:
            added.type = TYPES[kind]
            if presence and added.label == Field.LABEL_OPTIONAL:
                added.proto3_optional = True
                added.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{each}")
    return made


def proto_file(name: str = "test.proto", *imports: str) -> FileDescriptorProto:
    return FileDescriptorProto(name=name, package="test", syntax="proto3", dependency=list(imports))


def descriptor_set(*files: FileDescriptorProto) -> str:
    """Return the files in Base64, as a definition holds them."""
    return base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()


def descriptor(file: FileDescriptorProto) -> str:
    """Return one file in Base64, as a registry gives it."""
    return base64.b64encode(file.SerializeToString()).decode()


def message_class(name: str, *files: FileDescriptorProto) -> type[Message]:
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.Add(file)
    made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return made


def message_framed(schema_id: int, indexes: Sequence[int], value: bytes) -> bytes:
    """Return a record of a registry's schema. `indexes`: which message of the file it is."""
    path = b"\0" if list(indexes) == [0] else zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
    return b"\0" + schema_id.to_bytes(4, "big") + path + value


def event_file() -> FileDescriptorProto:
    """Return the file of `test.Event`, which is the second message of it."""
    file = proto_file("event.proto", "google/protobuf/timestamp.proto")
    add_message(file, "Other", [("ts", "string")])
    event = add_message(
        file,
        "Event",
        [
            ("ts", "int64"),
            ("unread", "repeated string"),
            ("s", "string"),
            ("i", "int32"),
            ("b", "sint64"),
            ("f", "double"),
            ("d", "string"),
            ("ok", "bool"),
            ("day", "string"),
            ("at", ".google.protobuf.Timestamp"),
            ("outer", ".test.Event.Outer"),
            ("numbers", "repeated int64"),
        ],
    )
    add_message(event, "Outer", [("inner", ".test.Event.Outer.Inner")])
    add_message(event.nested_type[0], "Inner", [("n", "int32")])
    return file


def event_message(kind: type[Message], event: Mapping[str, Any]) -> bytes:
    values: dict[str, Any] = {name: value for name, value in event.items() if value is not None}
    deep = values.pop("deep", None)
    made = kind(**(values | {name: str(values[name]) for name in ("d", "day") if name in values}))
    if deep is not None:
        made.outer.inner.n = deep  # type: ignore[attr-defined]
    made.unread.extend(["x", "y"])  # type: ignore[attr-defined]
    made.numbers.extend([1, 1 << 40])  # type: ignore[attr-defined]
    return made.SerializeToString()


SHARED_TEXT = """\
syntax = "proto3";
package test;
message Inner { optional int32 n = 1; }
"""
EVENT_TEXT = """\
// what a producer has registered
syntax = "proto3";
package test;
import "google/protobuf/timestamp.proto";
import "shared/inner.proto";

message Other { optional string ts = 1; }
message Event {
  optional int64 ts = 1;
  repeated string unread = 2;
  optional string s = 3;
  optional int32 i = 4;
  optional sint64 b = 5;
  optional double f = 6;
  optional string d = 7;
  optional bool ok = 8;
  optional string day = 9;
  optional google.protobuf.Timestamp at = 10;
  message Outer { optional Inner inner = 1; }
  optional Outer outer = 11;
  repeated int64 numbers = 12;
}
"""
