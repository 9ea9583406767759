"""The files of registered schemas of Protobuf, with their references, and the messages in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.kafka.schema_registry import Reference, RegisteredSchema
from rtolap.model.formats.protobuf_set import FILES_MAX, KNOWN_FILES, octets_of, pool_of, unreadable


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
        if reference.name in files or reference.name in KNOWN_FILES:
            continue
        if len(files) >= FILES_MAX:
            raise DefinitionError("too many references", expected=f"at most {FILES_MAX}")
        found = referenced(reference)
        files[reference.name] = _file(found.text)
        files[reference.name].name = reference.name
        waiting += found.references
    if not main.name or main.name in files:
        main.name = "schema of the registry"
    return pool_of((*files.values(), main)).FindFileByName(main.name)


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
        found.ParseFromString(octets_of(text))
    except DecodeError as error:
        raise unreadable("a FileDescriptorProto", error) from error
    return found
