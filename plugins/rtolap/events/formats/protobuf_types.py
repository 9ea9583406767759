"""The files of registered schemas of Protobuf, with their references, and the messages in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.events.formats.protobuf_sources import compiled, is_source
from rtolap.kafka.schema_registry import Reference, RegisteredSchema
from rtolap.model.formats.protobuf_set import FILES_MAX, KNOWN_FILES, octets_of, pool_of, unreadable

_MAIN = "schema.proto"  # a registry names no file but those that others import


def file_of_schema(
    registered: RegisteredSchema, referenced: Callable[[Reference], RegisteredSchema]
) -> FileDescriptor:
    """Return the file of a registered schema: of it and its references the registry has given descriptors in
    Base64, or the texts of `.proto` files.

    Raises DefinitionError; Unavailable where a text cannot be compiled now; NotFound and Unavailable of
    `referenced`.
    """
    texts: dict[str, str] = {}
    waiting = list(registered.references)
    while waiting:
        reference = waiting.pop()
        if reference.name in texts or reference.name in KNOWN_FILES:
            continue
        if len(texts) >= FILES_MAX:
            raise DefinitionError("too many references", expected=f"at most {FILES_MAX}")
        found = referenced(reference)
        texts[reference.name] = found.text
        waiting += found.references
    if is_source(registered.text):
        return _of_sources(registered.text, texts)
    files = {name: _file(text) for name, text in texts.items()}
    for name, file in files.items():
        file.name = name
    main = _file(registered.text)
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


def _of_sources(text: str, texts: dict[str, str]) -> FileDescriptor:
    name = _MAIN
    while name in texts:
        name = f"_{name}"
    described = sorted(each for each, found in texts.items() if not is_source(found))
    if described:
        raise DefinitionError(
            "a schema in two forms",
            expected="texts of .proto files, as the schema itself",
            found=f"descriptors of {', '.join(described)[:200]}",
            action="register the text of each",
        )
    return pool_of(compiled({**texts, name: text}, name)).FindFileByName(name)


def _file(text: str) -> descriptor_pb2.FileDescriptorProto:
    found = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(octets_of(text))
    except DecodeError as error:
        raise unreadable("a FileDescriptorProto", error) from error
    return found
