"""Receivers of topics in other formats than JSON: answers equal a recount, after kills and outages, too."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.formats.record_format import RecordFormat

from tests.support.cubes.builders import START_MS, Event, random_event, small_schema
from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.services import wait_for
from tests.support.formats.avro import encode, framed
from tests.support.formats.registry_server import running_registry, serving

pytestmark = pytest.mark.integration

CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "ts", "type": "long"},
        {"name": "kind", "type": ["null", "string"]},
        {"name": "place", "type": ["null", "int"]},
        {"name": "amount", "type": ["null", "long"]},
        {"name": "price", "type": ["null", CENTS]},
    ],
}
ID = 41


def as_csv(event: Event) -> bytes:
    """Return all of the event but its kind, which is the record's key."""
    fields = (event.event_ms, event.place, event.amount, event.price)
    return "|".join("" if value is None else str(value) for value in fields).encode()


def as_avro(event: Event) -> bytes:
    names = ("kind", "place", "amount", "price")
    values = {"ts": event.event_ms} | {name: getattr(event, name) for name in names}
    return framed(ID, encode(SCHEMA, values))


def send(world: ReceiverWorld, write: Callable[[Event], bytes], count: int, bad: tuple[bytes, ...]) -> int:
    """Send events, with what is malformed in JSON replaced by bad records; return how many are refused."""
    refused = 0
    for number in range(count):
        value, event = random_event(world.random, START_MS + number * 200)
        if event is None and value is not None:
            value = bad[refused % len(bad)]
        refused += event is None
        partition = number % len(world.log)
        key = None if event is None or event.kind is None else event.kind.encode()
        record = OutRecord(value if event is None else write(event), key=key, partition=partition)
        world.producer.produce(world.cube, [record])
        world.log[partition].append(event)
    world.producer.flush(30)
    return refused


def reasons(world: ReceiverWorld) -> dict[str, int]:
    state = world.state("r0")
    assert state is not None
    found: dict[str, int] = {}
    for partition in state.partitions:
        for reason, count in partition.rejected.items():
            found[reason] = found.get(reason, 0) + count
    return found


def test_csv_with_a_dimension_out_of_keys_is_exact_over_a_kill(
    make_world: Callable[..., ReceiverWorld],
) -> None:
    columns = [
        msgspec.structs.replace(column, source="key") if column.name == "kind" else column
        for column in small_schema().table.columns
    ]
    world = make_world(columns=tuple(columns), format=RecordFormat(type="csv", delimiter="|"))
    world.assign()
    world.start("r0")
    bad = (b"1|2", b'1|"open|1|1', b"yesterday|||", b"1|1\n|1|1", b"1|1|1|1.555")
    refused = 0
    for _ in range(2):
        refused += send(world, as_csv, 600, bad)
        assert world.exact("r0")
        world.end("r0", signal.SIGKILL)
        world.start("r0")
    assert world.exact("r0")
    assert sum(reasons(world).values()) == refused
    assert {"malformed_csv", "invalid_time", "wrong_type"} <= set(reasons(world))


def test_avro_of_a_registry_is_exact_and_waits_for_it(make_world: Callable[..., ReceiverWorld]) -> None:
    """While the registry is away nothing is decoded, no offset passes, and the status says why."""
    with running_registry() as registry:
        registry.schemas[ID] = {"schema": json.dumps(SCHEMA)}
        port = int(registry.url.rpartition(":")[2])
        world = make_world(format=RecordFormat(type="avro", registry="default"))
        world.environment["RTOLAP_SCHEMA_REGISTRY"] = registry.url
    world.assign()
    world.start("r0")
    refused = send(world, as_avro, 600, (b"{}", framed(9, b"1"), framed(ID, b"\2")))

    def error() -> str:
        state = world.state("r0")
        return "" if state is None else state.reason

    wait_for("the status names the registry", lambda: "schema registry default" in error())
    answer, positions = world.ask("r0", {})
    assert sum(positions.values()) == 0, "no offset has passed"
    assert not answer
    with serving(registry, port=port):
        wait_for("all is counted", lambda: sum(reasons(world).values()) == refused)
        assert world.exact("r0")
        assert error() == ""
        world.end("r0", signal.SIGKILL)
        world.start("r0")
        refused += send(world, as_avro, 600, (b"\0\0",))
        assert world.exact("r0")
        assert sum(reasons(world).values()) == refused
        assert {"bad_framing", "unknown_schema", "malformed_avro"} <= set(reasons(world))
