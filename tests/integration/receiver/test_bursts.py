"""Half a million events a second, all at once: taken in once each, within bounds, and all is fresh again."""

from __future__ import annotations

import time
from collections import Counter

import psutil
import pytest
from confluent_kafka import Producer
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.builders import START_MS
from tests.support.cubes.receiver_world import PARTITIONS, ReceiverWorld
from tests.support.cubes.services import wait_for
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration

EVENTS_PER_S = 500_000
BURST = so_many(EVENTS_PER_S)  # a second of it; ten seconds with ten times as many seeds
SLICE = EVENTS_PER_S // 100
KINDS = 1_000
FRESH_S_MAX = 5.0
CATCH_UP_S = 120.0
GROWN_MB_MAX = 500


def _counts(world: ReceiverWorld, at_least: dict[int, int]) -> tuple[Counter[str], dict[int, int]]:
    query = PartialQuery(world.cube, ("kind",), ("__rows",), HistorySnapshot(), None, at_least, 30_000)
    with world.client("r0") as client:
        table, said = client.query(query)
    columns = (table.column(name).to_pylist() for name in ("kind", "__rows"))
    return Counter(dict(zip(*columns, strict=True))), said.positions


def _send(world: ReceiverWorld, count: int) -> Counter[str]:
    """At EVENTS_PER_S or, where this machine is slower, as fast as it sends. Returns the number by kind."""
    values = [
        {"value": b'{"ts":%d,"kind":"k%d","place":%d,"amount":1}' % (START_MS + n % 7_000, n % KINDS, n % 7)}
        for n in range(SLICE)
    ]
    sent: Counter[str] = Counter()
    producer = Producer(
        {
            "bootstrap.servers": world.kafka,
            "linger.ms": 5,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 2 * EVENTS_PER_S,
            "queue.buffering.max.kbytes": 1 << 20,
            "compression.type": "lz4",
        }
    )
    started_s = time.monotonic()
    for number in range(count // SLICE):
        while len(producer) > EVENTS_PER_S:  # Kafka is slower than the burst
            producer.poll(0.01)
        assert producer.produce_batch(world.cube, values, partition=number % PARTITIONS) == SLICE
        for kind in range(KINDS):
            sent[f"k{kind}"] += SLICE // KINDS
        producer.poll(0)
        ahead_s = started_s + (number + 1) * SLICE / EVENTS_PER_S - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
    assert producer.flush(60) == 0
    return sent


@pytest.mark.seeded
def test_a_burst_is_counted_once_within_bounds_and_what_comes_after_it_is_fresh(world: ReceiverWorld) -> None:
    world.assign()
    world.start("r0")
    sent = _send(world, SLICE)
    wait_for("it reads", lambda: _counts(world, {})[0] == sent)
    process = psutil.Process(world.processes["r0"].pid)
    before_mb = process.memory_info().rss >> 20

    sent += _send(world, BURST)
    most_mb = before_mb

    def all_there() -> bool:
        nonlocal most_mb
        most_mb = max(most_mb, process.memory_info().rss >> 20)
        found, positions = _counts(world, {})
        assert found.total() == sum(positions.values()), "an answer is a prefix, in the middle of a burst too"
        return found.total() == sent.total()

    wait_for("the burst is taken in", all_there, CATCH_UP_S)
    assert _counts(world, {})[0] == sent
    assert most_mb - before_mb <= GROWN_MB_MAX

    started_s = time.monotonic()
    sent += _send(world, SLICE)
    wait_for("what came after the burst is seen", lambda: _counts(world, {})[0] == sent)
    assert time.monotonic() - started_s <= FRESH_S_MAX
