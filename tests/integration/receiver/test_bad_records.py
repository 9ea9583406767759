"""One record of each bad kind beside good ones: what is counted by reason, and what is kept where."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import get_args

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from rtolap.base.errors import NotFound
from rtolap.events.classify import Reason
from rtolap.kafka.dead_letters import DeadLetter, older_dead_letters, read_dead_letters
from rtolap.kafka.producer import KafkaAdmin

from tests.support.cubes.builders import START_MS, Event
from tests.support.cubes.receiver_world import ReceiverWorld
from tests.support.cubes.services import wait_for

pytestmark = pytest.mark.integration

_OF_OTHERS = {"missing_value", "out_of_range"}  # of stored tables, and of computed columns
_OF_OTHER_FORMATS = {"malformed_csv", "malformed_avro", "malformed_protobuf", "bad_framing", "unknown_schema"}
_OF_CHANGES = {"unknown_operation"}  # of rows, which loaders take
_OF_SKETCHES = {"malformed_sketch", "unfit_sketch"}  # of columns of bytes, which this table has none of
KINDS = set(get_args(Reason)) - _OF_OTHERS - _OF_OTHER_FORMATS - _OF_CHANGES - _OF_SKETCHES
MEGABYTE = 1 << 20  # the default of the table's `record_bytes_max`; the broker takes two
IN_THE_YEAR_2100_MS = 4_102_444_800_000

Place = tuple[int, int]  # partition and offset of the refused record
Letter = tuple[dict[str, bytes], bytes | None]  # headers and value


def _good(number: int) -> tuple[bytes, Event]:
    event = Event(START_MS + number, "a", number % 3, number, None)
    body = {"ts": event.event_ms, "kind": event.kind, "place": event.place, "amount": event.amount}
    return json.dumps(body).encode(), event


def _text(bytes_: int, seed: int) -> bytes:
    """That no compression makes small."""
    return random.Random(seed).randbytes(bytes_ // 2 + 1).hex().encode()[:bytes_]


def _bad() -> list[tuple[str, bytes | None]]:
    ts = b'{"ts":%d' % START_MS
    return [
        ("tombstone", None),
        ("empty", b""),
        ("too_large", _text(MEGABYTE + 1, 1)),
        ("too_large", random.Random(3).randbytes(2 * MEGABYTE - 120)),
        ("invalid_utf8", ts + b',"kind":"\xff\xfe"}'),
        ("malformed_json", ts),
        ("malformed_json", ts + b',"kind":"' + _text(MEGABYTE - 100, 2)),
        ("not_an_object", b'["a"]'),
        ("wrong_type", ts + b',"place":"x"}'),
        ("nested_value", ts + b',"kind":{"a":1}}'),
        ("unknown_column", ts + b',"colour":"red"}'),
        ("invalid_time", b'{"ts":"yesterday"}'),
        ("missing_time", b'{"kind":"a"}'),
        ("time_in_future", b'{"ts":%d}' % IN_THE_YEAR_2100_MS),
    ]


def _letters(world: ReceiverWorld) -> dict[Place, Letter]:
    """The dead-letter topic as it is, read with a plain client."""
    topic = world.schema.table.dead_letter_topic
    consumer = Consumer({"bootstrap.servers": world.kafka, "group.id": f"{topic}-reader"})
    found: dict[Place, Letter] = {}
    try:
        where = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=10)
        consumer.assign([where])

        def all_read() -> bool:
            for message in consumer.consume(100, timeout=0.5):
                assert message.error() is None, message.error()
                headers = dict(message.headers() or ())
                place = int(headers["partition"]), int(headers["offset"])
                assert message.key() == b"%s/%d/%d" % (world.cube.encode(), *place)
                found[place] = headers, message.value()
            return consumer.position([where])[0].offset >= end or end == 0

        wait_for("the dead letters are read", all_read)
    finally:
        consumer.close()
    return found


def _kept(world: ReceiverWorld) -> set[Place]:
    return set(_letters(world))


def _read_of(world: ReceiverWorld, places: set[Place]) -> set[Place]:
    """Return those that the receiver has read."""
    state = world.state("r0")
    assert state is not None
    positions = {one.partition: one.position for one in state.partitions}
    return {(partition, at) for partition, at in places if at < positions.get(partition, 0)}


def _counted(world: ReceiverWorld) -> Counter[str]:
    state = world.state("r0")
    assert state is not None
    return sum((Counter(one.rejected) for one in state.partitions), Counter())


def test_every_bad_kind_is_counted_by_reason_and_kept_whole(
    make_world: Callable[..., ReceiverWorld],
) -> None:
    world = make_world(unknown_columns="reject")
    world.assign()
    world.start("r0")
    refused_values: dict[Place, tuple[str, bytes | None]] = {}
    for number, (reason, value) in enumerate(_bad()):
        partition = number % len(world.log)
        world.send(partition, *_good(2 * number))
        refused_values[partition, world.send(partition, value, None)] = reason, value
        world.send(partition, *_good(2 * number + 1))
    largest, event = _good(10_000)
    world.send(0, largest + b" " * (MEGABYTE - len(largest)), event)
    world.producer.flush(30)
    # A column that must have a value is a stored table's: only loaders miss one. This table computes nothing.
    assert {reason for reason, _ in refused_values.values()} == KINDS

    assert world.exact("r0"), "the good ones are all counted, the largest that is allowed too"
    assert _counted(world) == Counter(reason for reason, _ in refused_values.values())
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    letters = _letters(world)
    assert letters.keys() == refused_values.keys()
    for (partition, offset), (headers, value) in letters.items():
        reason, original = refused_values[partition, offset]
        assert value == original, "whole and unchanged"
        assert headers["topic"].decode() == world.cube
        assert headers["reason"].decode() == reason
        assert headers["detail"]
    listed = list(read_dead_letters(world.kafka, world.schema.table.dead_letter_topic))
    assert {(one.partition, one.offset): one.reason for one in listed} == {
        place: reason for place, (reason, _) in refused_values.items()
    }
    check_some_at_a_time(world, listed)

    world.end("r0", signal.SIGKILL)
    world.start("r0")
    assert world.exact("r0")
    assert _counted(world) == Counter(reason for reason, _ in refused_values.values()), (
        "kept by the checkpoint"
    )


def check_some_at_a_time(world: ReceiverWorld, listed: list[DeadLetter]) -> None:
    """From the newest on, a few at a time, each letter is found once."""
    topic, before, found = world.schema.table.dead_letter_topic, {}, []  # type: ignore[var-annotated]
    more = True
    while more:
        letters, before, more = older_dead_letters(world.kafka, topic, before, 3)
        places = [(each.at_ms, each.letter.partition, each.letter.offset) for each in letters]
        assert places == sorted(places, reverse=True)
        found += [each.letter for each in letters]
    assert Counter(found) == Counter(listed)
    assert older_dead_letters(world.kafka, topic, before, 3).letters == ()


def test_refusals_after_a_crash_are_kept_once_for_a_reader(world: ReceiverWorld) -> None:
    """What no checkpoint holds is read and refused again: the same key, so one letter for a reader."""
    world.assign()
    world.start("r0")
    world.produce(400)
    assert world.exact("r0")
    world.end("r0", signal.SIGKILL)
    world.start("r0")
    world.produce(100)
    assert world.exact("r0")
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    refused = {(p, at) for p, es in world.log.items() for at, event in enumerate(es) if event is None}
    assert refused
    assert _letters(world).keys() == refused
    assert _counted(world).total() == len(refused)


def _reason(world: ReceiverWorld) -> str:
    state = world.state("r0")
    return f"{state.state}: {state.reason}" if state is not None else ""


def _set_bytes_max(world: ReceiverWorld, topic: str, bytes_max: int) -> None:
    admin = AdminClient({"bootstrap.servers": world.kafka})
    entry = ConfigEntry("max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def test_a_letter_that_the_broker_refuses_is_never_lost(
    world: ReceiverWorld, create_topic: Callable[..., str]
) -> None:
    """The topic takes no letter of that size: the consumer waits, over a kill -9 too, until it does."""
    topic = world.schema.table.dead_letter_topic
    create_topic(topic, config={"max.message.bytes": "2000"})
    world.assign()
    world.start("r0")
    refused: set[Place] = set()
    for number in range(30):
        world.send(number % 2, *_good(number))
        bad = _text(4000, number) if number == 11 else b"{"
        refused.add((number % 2, world.send(number % 2, bad, None)))
    world.producer.flush(30)
    wait_for("it says why it waits", lambda: "1 refused records cannot be kept" in _reason(world))
    assert _reason(world).startswith("PAUSED: ")
    assert topic in _reason(world)
    large = (1, world.ends()[1] - 1 - 2 * 9)
    assert large in refused
    # how much of the topic came with it, the broker decides: the rest is read when it goes on
    wait_for("all others that were read are kept", lambda: _kept(world) == _read_of(world, refused) - {large})
    assert large in _read_of(world, refused)

    world.end("r0", signal.SIGKILL)
    world.start("r0")
    wait_for("it waits again", lambda: "1 refused records cannot be kept" in _reason(world))

    _set_bytes_max(world, topic, 1 << 20)
    world.produce(100)
    wait_for("it goes on", lambda: world.exact("r0"))
    refused |= {(p, at) for p, es in world.log.items() for at, event in enumerate(es) if event is None}
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    letters = _letters(world)
    assert letters.keys() == refused
    assert letters[large][1] == _text(4000, 11)
    assert _counted(world).total() == len(refused)


def test_a_dead_letter_topic_deleted_while_in_use_is_made_again(world: ReceiverWorld) -> None:
    topic = world.schema.table.dead_letter_topic
    world.assign()
    world.start("r0")
    world.send(0, b"{", None)
    world.producer.flush(30)
    wait_for("it is refused", lambda: _counted(world).total() == 1)
    with world.client("r0") as client:
        client.action("checkpoint", {"cube": world.cube})
    assert _letters(world).keys() == {(0, 0)}
    admin = KafkaAdmin(world.kafka)
    try:
        admin.delete_topic(topic)
        place = 0, world.send(0, b"[", None)
        world.producer.flush(30)
        wait_for("the letter is kept in a new topic", lambda: _stored_places(world, admin, topic) == {place})
    finally:
        admin.close()
    wait_for("it consumes", lambda: _reason(world).startswith("CONSUMING"))


def _stored_places(world: ReceiverWorld, admin: KafkaAdmin, topic: str) -> set[Place]:
    try:
        admin.partitions(topic)
    except NotFound:
        return set()
    return set(_letters(world))
