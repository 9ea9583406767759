"""A real schema registry: records in its framing, schemas that change, and an outage in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.formats.record_format import RecordFormat

from tests.support.cubes.builders import START_MS, Event, random_event
from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.services import wait_for
from tests.support.formats.apicurio import Apicurio
from tests.support.formats.avro import encode, framed
from tests.support.formats.protobuf import add_message, descriptor, message_class, message_framed, proto_file
from tests.support.formats.registry_server import running_registry

pytestmark = pytest.mark.integration

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
KINDS: Mapping[str, Any] = {
    "ts": "long",
    "kind": ["null", "string"],
    "place": ["null", "int"],
    "amount": ["null", "long"],
    "price": ["null", CENTS],
}
EVENTS = 200


@pytest.fixture(scope="module")
def registry(module_folder: Path) -> Iterator[Apicurio]:
    with Apicurio(module_folder / "registry") as running:
        yield running


def avro(*names: str, **added: Any) -> dict[str, Any]:
    """Return a schema with these fields in this order, and further ones with defaults."""
    fields: list[dict[str, Any]] = [{"name": name, "type": KINDS[name]} for name in names]
    fields += [{"name": name, "type": "string", "default": default} for name, default in added.items()]
    return {"type": "record", "name": "Sale", "fields": fields}


AVRO = (
    avro("ts", "kind", "place", "amount", "price"),
    avro("ts", "price", "kind", "amount", "place", note="a note"),
    avro("ts", "kind", "place", "amount", "price", note="none", more="more"),
)


def values_of(event: Event) -> dict[str, Any]:
    return {"ts": event.event_ms} | {
        name: getattr(event, name) for name in ("kind", "place", "amount", "price")
    }


def as_avro(version: int, schema_id: int) -> Callable[[Event], bytes]:
    added = {"note": "x", "more": ""}
    return lambda event: framed(schema_id, encode(AVRO[version], values_of(event) | added))


def proto(*added: tuple[str, str]) -> FileDescriptorProto:
    file = proto_file("sale.proto")
    add_message(file, "Other", [("x", "string")])
    fields = [
        ("ts", "int64"),
        ("kind", "string"),
        ("place", "int32"),
        ("amount", "sint64"),
        ("price", "string"),
    ]
    add_message(file, "Sale", [*fields, *added])
    return file


PROTOBUF = (proto(), proto(("note", "string")), proto(("note", "string"), ("tags", "repeated string")))


def as_protobuf(version: int, schema_id: int) -> Callable[[Event], bytes]:
    kind = message_class("test.Sale", PROTOBUF[version])

    def write(event: Event) -> bytes:
        values = {name: value for name, value in values_of(event).items() if value is not None}
        if "price" in values:
            values["price"] = str(values["price"])
        if version > 0:
            values["note"] = "x"
        return message_framed(schema_id, [1], kind(**values).SerializeToString())

    return write


def send(world: ReceiverWorld, *writers: Callable[[Event], bytes]) -> None:
    """Send events, each written by one of these producers."""
    sent = sum(len(events) for events in world.log.values())
    for number in range(sent, sent + EVENTS):
        _, event = random_event(world.random, START_MS + number * 200)
        if event is not None:
            partition = number % len(world.log)
            world.producer.produce(
                world.cube, [OutRecord(world.random.choice(writers)(event), partition=partition)]
            )
            world.log[partition].append(event)
    world.producer.flush(30)


def text_of(*added: str) -> str:
    """Return the text of the file of `proto`."""
    fields = ["int64 ts", "string kind", "int32 place", "sint64 amount", "string price", *added]
    lines = [
        f"  {'' if field.startswith('repeated') else 'optional '}{field} = {number};"
        for number, field in enumerate(fields, 1)
    ]
    inside = "\n".join(lines)
    return (
        'syntax = "proto3";\npackage test;\nimport "shared/other.proto";\n'
        f"message Other {{ optional Shared x = 1; }}\nmessage Sale {{\n{inside}\n}}\n"
    )


SHARED = 'syntax = "proto3";\npackage test;\nmessage Shared { optional string x = 1; }\n'
TEXTS = (text_of(), text_of("string note"), text_of("string note", "repeated string tags"))


def registered(registry: Apicurio, subject: str, form: str) -> list[int]:
    """Register the schemas of a form, one after the other, and return their ids."""
    if form == "avro":
        return [registry.register(subject, json.dumps(each)) for each in AVRO]
    if form == "protobuf":
        return [registry.register(subject, descriptor(each), kind="PROTOBUF") for each in PROTOBUF]
    registry.register(f"{subject}-shared", SHARED, kind="PROTOBUF")
    shared = {"name": "shared/other.proto", "subject": f"{subject}-shared", "version": 1}
    return [registry.register(subject, each, kind="PROTOBUF", references=[shared]) for each in TEXTS]


@pytest.mark.parametrize("form", ["avro", "protobuf", "protobuf texts"])
def test_schemas_change_and_the_registry_is_killed(
    make_world: Callable[..., ReceiverWorld], registry: Apicurio, unique_name: str, form: str
) -> None:
    """What is known goes on without the registry. What is not waits, and the status says why."""
    subject = f"{unique_name}-value"
    ids = registered(registry, subject, form)
    assert len(set(ids)) == 3
    form = form.removesuffix(" texts")
    write = as_avro if form == "avro" else as_protobuf
    first, second, third = (write(version, schema_id) for version, schema_id in enumerate(ids))
    world = make_world(format=RecordFormat(type=form, registry="default"))  # type: ignore[arg-type]
    world.environment["RTOLAP_SCHEMA_REGISTRY"] = registry.url
    world.assign()
    world.start("r0")
    send(world, first)
    assert world.exact("r0")
    send(world, first, second)
    assert world.exact("r0")

    registry.process.kill()
    try:
        send(world, second, first)
        assert world.exact("r0"), "schemas that are known need no registry"
        before = world.ask("r0", {})[1]
        send(world, third)

        def reason() -> str:
            state = world.state("r0")
            return "" if state is None else state.reason

        wait_for("the status names the registry", lambda: f"does not give schema {ids[2]}" in reason())
        assert world.ask("r0", {})[1] == before, "no offset has passed"
    finally:
        registry.process.start()
    assert world.exact("r0")
    wait_for("the status has no complaint", lambda: reason() == "")
    state = world.state("r0")
    assert state is not None
    assert not any(partition.rejected for partition in state.partitions)


def test_the_registry_of_other_tests_answers_as_the_real_one(registry: Apicurio, unique_name: str) -> None:
    """Statuses, error codes and the parts of an answer that consumers rest on."""
    inner = {"type": "record", "name": f"Inner{unique_name[-8:]}", "fields": []}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": inner["name"]}]}
    names = f"{unique_name}-inner", f"{unique_name}-outer"
    reference = {"name": inner["name"], "subject": names[0], "version": 1}
    ids = (
        registry.register(names[0], json.dumps(inner)),
        registry.register(names[1], json.dumps(outer), references=[reference]),
    )
    with running_registry() as fake:
        fake.schemas[ids[0]] = {"schema": json.dumps(inner)}
        fake.schemas[ids[1]] = {"schema": json.dumps(outer), "references": [reference]}
        fake.subjects[names[0], 1] = {"subject": names[0], "version": 1, "schema": json.dumps(inner)}
        for path in (
            f"/schemas/ids/{ids[0]}",
            f"/schemas/ids/{ids[1]}",
            "/schemas/ids/999999",
            f"/subjects/{names[0]}/versions/1",
            f"/subjects/{names[0]}/versions/7",
            f"/subjects/{unique_name}-none/versions/1",
        ):
            status, found = registry.get(path)
            fake_status, body = fake.answer(path, None)
            assert (fake_status, rested_on(json.loads(body))) == (status, rested_on(found)), path


def rested_on(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error_code" in answer:
        return {"error_code": answer["error_code"]}
    schema = json.loads(answer["schema"])
    return {"schema": schema, "kind": answer.get("schemaType", "AVRO"), "on": answer.get("references") or []}
