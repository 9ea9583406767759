"""Messages of Protobuf, out of descriptors: a set of files, or a schema of a registry with its references."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable

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
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.kafka.schema_registry import Reference, RegisteredSchema

_KNOWN = {
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
_REFERENCES_MAX = 200  # files that one schema builds on, those of its references included


def message_of_set(schema: str, message: str) -> Descriptor:
    """Return a message of a FileDescriptorSet in Base64. Raises DefinitionError."""
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(_octets(schema))
    except DecodeError as error:
        raise _unreadable("a FileDescriptorSet", error) from error
    pool = _pool_of(found.file)
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        names = [
            f"{file.package}.{each.name}".lstrip(".") for file in found.file for each in file.message_type
        ]
        raise DefinitionError(
            f"the descriptors have no message {message}", expected=f"one of {', '.join(names)[:500]}"
        ) from None


def file_of_schema(
    registered: RegisteredSchema, referenced: Callable[[Reference], RegisteredSchema]
) -> FileDescriptor:
    """Return the file of a registered schema, whose descriptor and whose references' are in Base64.

    Raises DefinitionError; NotFound and Unavailable of `referenced`.
    """
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    main = _file(registered.text)
    waiting = list(registered.references)
    while waiting:
        reference = waiting.pop()
        if reference.name in files or reference.name in _KNOWN:
            continue
        if len(files) >= _REFERENCES_MAX:
            raise DefinitionError("too many references", expected=f"at most {_REFERENCES_MAX}")
        found = referenced(reference)
        files[reference.name] = _file(found.text)
        files[reference.name].name = reference.name
        waiting += found.references
    if not main.name or main.name in files:
        main.name = "schema of the registry"
    return _pool_of((*files.values(), main)).FindFileByName(main.name)


def message_at(file: FileDescriptor, indexes: Iterable[int]) -> Descriptor:
    """Return the message at a path of positions: of the file, then inside of that message. Raises
    NotFound."""
    inside = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(inside):
            raise NotFound(f"the schema has no message at position {index}")
        found = inside[index]
        inside = list(found.nested_types)
    if found is None:
        raise NotFound("no message is named")
    return found


def _file(text: str) -> descriptor_pb2.FileDescriptorProto:
    found = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(_octets(text))
    except DecodeError as error:
        raise _unreadable("a FileDescriptorProto", error) from error
    return found


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _unreadable("Base64", error) from error


def _pool_of(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool of the files, and of those of Google's own that they import."""
    pool = descriptor_pool.DescriptorPool()
    left = {file.name: file for file in files}
    added: set[str] = set()

    def add(name: str, depth: int) -> None:
        if name in added:
            return
        if depth > _REFERENCES_MAX:
            raise DefinitionError("files that import each other", expected="an end", found=name)
        if name not in left:
            if name not in _KNOWN:
                raise DefinitionError("a file is missing", expected=f"{name} among the descriptors")
            pool.AddSerializedFile(_KNOWN[name])
        else:
            for needed in left[name].dependency:
                add(needed, depth + 1)
            pool.Add(left[name])
        added.add(name)

    try:
        for name in left:
            add(name, 0)
    except (TypeError, ValueError) as error:
        raise _unreadable("files that fit each other", error) from error
    return pool


def _unreadable(expected: str, error: Exception) -> DefinitionError:
    return DefinitionError("not descriptors of Protobuf", expected=expected, found=str(error)[:200])
