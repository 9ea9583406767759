"""Texts of `.proto` files: compiled by the makers' compiler, as their descriptors would be, or refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.events.formats import protobuf_sources
from rtolap.events.formats.protobuf_sources import TEXT_CHARS_MAX, compiled, is_source
from rtolap.events.formats.protobuf_types import file_of_schema, message_at
from rtolap.kafka.schema_registry import Reference, RegisteredSchema

from tests.support.formats.declared import KnownSchemas
from tests.support.formats.protobuf import EVENT_TEXT, SHARED_TEXT, descriptor, event_file, proto_file

INNER = Reference("shared/inner.proto", "inner", 1)
KNOWN = KnownSchemas({}, {"inner": RegisteredSchema(SHARED_TEXT, "PROTOBUF")})


def described(file: Any) -> dict[str, list[tuple[str, int, int]]]:
    made = FileDescriptorProto()
    file.CopyToProto(made)
    return {
        each.name: [(field.name, field.number, field.type) for field in each.field]
        for each in made.message_type
    }


def test_a_text_has_the_messages_of_its_descriptor() -> None:
    of_text = file_of_schema(RegisteredSchema(EVENT_TEXT, "PROTOBUF", (INNER,)), KNOWN.referenced)
    of_descriptor = file_of_schema(RegisteredSchema(descriptor(event_file()), "PROTOBUF"), KNOWN.referenced)
    assert described(of_text) == described(of_descriptor)
    assert message_at(of_text, [1]).full_name == "test.Event"


def test_texts_and_descriptors_are_told_apart() -> None:
    assert is_source(EVENT_TEXT)
    assert is_source("message A {}")
    assert not is_source(descriptor(event_file()))
    assert not is_source(descriptor(proto_file()))


@pytest.mark.parametrize(
    ("text", "references", "says"),
    [
        ("message Half {", (), "schema.proto:1"),
        ('syntax = "proto3"; import "shared/inner.proto";', (), "shared/inner.proto"),
        ('syntax = "proto3"; message A { B b = 1; }', (), '"B" is not defined'),
        ('import "/etc/hostname";', (), "/etc/hostname"),
        (EVENT_TEXT, (Reference("described.proto", "described", 1), INNER), "descriptors of described.proto"),
        (EVENT_TEXT, (Reference("../inner.proto", "inner", 1),), "../inner.proto"),
        (EVENT_TEXT, (Reference("/tmp/inner.proto", "inner", 1),), "/tmp/inner.proto"),
        (EVENT_TEXT, (INNER, Reference("shared", "inner", 1)), "folder"),
        ("// " + "x" * TEXT_CHARS_MAX + ";", (), "too long"),
    ],
    ids=["half", "lacking", "type", "outside", "two forms", "above", "absolute", "folder", "long"],
)
def test_what_does_not_compile_is_refused_by_name(
    text: str, references: tuple[Reference, ...], says: str
) -> None:
    known = KnownSchemas(
        {}, {**KNOWN.subjects, "described": RegisteredSchema(descriptor(proto_file()), "PROTOBUF")}
    )
    with pytest.raises(DefinitionError) as caught:
        file_of_schema(RegisteredSchema(text, "PROTOBUF", references), known.referenced)
    assert says in str(caught.value)


def test_a_reference_that_the_registry_lacks_is_not_found() -> None:
    with pytest.raises(NotFound, match="no subject inner"):
        file_of_schema(RegisteredSchema(EVENT_TEXT, "PROTOBUF", (INNER,)), KnownSchemas({}).referenced)


def test_a_file_may_have_the_name_that_the_schema_would_get() -> None:
    text = 'syntax = "proto3"; package test; import "schema.proto"; message A { Inner i = 1; }'
    file = file_of_schema(
        RegisteredSchema(text, "PROTOBUF", (Reference("schema.proto", "inner", 1),)), KNOWN.referenced
    )
    assert list(file.message_types_by_name) == ["A"]


def test_a_host_without_the_compiler_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing about the records."""
    monkeypatch.setattr(protobuf_sources, "_COMPILER", "no_such_compiler")
    with pytest.raises(Unavailable, match=r"rtolap\[protobuf-text\]"):
        compiled({"a.proto": 'syntax = "proto3"; message OfAHostWithout {}'}, "a.proto")


@pytest.mark.parametrize("how", ["hangs", "killed"])
def test_a_compiler_that_does_not_end_by_itself_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run = subprocess.run

    def instead(command: tuple[str, ...], **options: Any) -> Any:
        if how == "hangs":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return run((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), **options)

    texts = {"a.proto": f'syntax = "proto3"; message {how.capitalize()} {{}}'}
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", instead)
        with pytest.raises(Unavailable, match="does not compile"):
            compiled(texts, "a.proto")
    assert [each.name for each in compiled(texts, "a.proto")] == ["a.proto"]


def test_a_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"once.proto": 'syntax = "proto3"; message Once {}'}
    first = compiled(texts, "once.proto")
    monkeypatch.setattr(protobuf_sources, "_COMPILER", "no_such_compiler")
    assert compiled(texts, "once.proto") == first
