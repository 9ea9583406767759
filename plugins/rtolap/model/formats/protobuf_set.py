"""Messages of Protobuf out of a set of descriptors, as `protoc --descriptor_set_out` writes it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from rtolap.base.errors import DefinitionError

FILES_MAX = 200  # that one schema builds on, those of its references included
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
KNOWN_FILES = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}


def message_of_set(schema: str, message: str) -> Descriptor:
    """Return a message of a FileDescriptorSet in Base64. Raises DefinitionError."""
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(octets_of(schema))
    except DecodeError as error:
        raise unreadable("a FileDescriptorSet", error) from error
    pool = pool_of(found.file)
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [
            f"{file.package}.{each.name}".lstrip(".") for file in found.file for each in file.message_type
        ]
        raise DefinitionError(
            f"the descriptors have no message {message}", expected=f"one of {', '.join(names)[:500]}"
        ) from None


def is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def key_number(key: FieldDescriptor, name: str) -> int | None:
    """Return the number that stands for a key of a map, which is named as JSON writes it. None: the map
    cannot have such a key."""
    if key.type == FieldDescriptor.TYPE_BOOL:
        return {"true": 1, "false": 0}.get(name)
    digits = name.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and str(int(name)) == name
    return int(name) if is_number else None


def octets_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise unreadable("Base64", error) from error


def pool_of(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool of the files, and of those of Google's own that they import."""
    pool = descriptor_pool.DescriptorPool()
    left = {file.name: file for file in files}
    added: set[str] = set()

    def add(name: str, depth: int) -> None:
        if name in added:
            return
        if depth > FILES_MAX:
            raise DefinitionError("files that import each other", expected="an end", found=name)
        if name not in left:
            if name not in KNOWN_FILES:
                raise DefinitionError("a file is missing", expected=f"{name} among the descriptors")
            pool.AddSerializedFile(KNOWN_FILES[name])
        else:
            for needed in left[name].dependency:
                add(needed, depth + 1)
            pool.Add(left[name])
        added.add(name)

    try:
        for name in left:
            add(name, 0)
    except (TypeError, ValueError) as error:
        raise unreadable("files that fit each other", error) from error
    return pool


def unreadable(expected: str, error: Exception) -> DefinitionError:
    return DefinitionError("not descriptors of Protobuf", expected=expected, found=str(error)[:200])
