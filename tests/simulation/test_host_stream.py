"""The simulated fleet keeps what it promises to those that are tested with it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import numpy as np
import pytest
from rtolap.base.errors import Unavailable
from rtolap.kafka.interfaces import OutRecord

from tests.support.seeds import so_many
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer
from tests.support.waiting import until
from tests.support.watermarks.host_events import Fleet, as_json, fleet, window_events
from tests.support.watermarks.host_stream import CATCH_UP_SPEED, Delivery, HostStream

START_MS, WINDOW_MS = 1_700_000_000_000, 10_000
PARTITIONS = 4
DEADLINE_S = 20.0


@pytest.fixture
def some() -> Fleet:
    return fleet(7, hosts=50, partitions=PARTITIONS, events_per_s=400.0, quiet=5, quiet_events_per_s=0.5)


def test_rates_are_skewed_and_sum_up_to_what_was_asked_for() -> None:
    found = fleet(1)
    assert found.events_per_s.sum() == pytest.approx(20_000)
    busy = np.delete(found.events_per_s, found.quiet)
    assert busy.max() > 100 * busy.min()
    assert set(found.events_per_s[found.quiet]) == {0.5}
    assert set(found.partition.tolist()) == set(range(8))
    assert len(set(found.names)) == 1_000


def test_a_windows_events_depend_on_the_seed_and_the_window_only(some: Fleet) -> None:
    first, again = (window_events(some, START_MS, WINDOW_MS) for _ in range(2))
    assert as_json(some, first) == as_json(some, again)
    other = window_events(some, START_MS + WINDOW_MS, WINDOW_MS)
    assert as_json(some, other) != as_json(some, first)
    assert len(first) == pytest.approx(400 * WINDOW_MS / 1000, rel=0.1)
    assert START_MS <= first.at_ms.min() <= first.at_ms.max() < START_MS + WINDOW_MS


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(12, 20)))
def test_whatever_stalls_each_event_leaves_its_host_once_and_in_order(some: Fleet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    delivery, now_ms = Delivery(some, START_MS, WINDOW_MS), START_MS
    sent = []
    while now_ms < START_MS + 6 * WINDOW_MS:
        now_ms = min(now_ms + int(rng.integers(1, 3_000)), START_MS + 6 * WINDOW_MS)
        hosts = rng.choice(some.hosts, 10, replace=False)
        if rng.random() < 0.5:
            delivery.stall(hosts, now_ms + rng.integers(-2_000, 2_000, 10))
        else:
            delivery.release(hosts)
        sent.append(delivery.step(now_ms))
        assert (sent[-1].at_ms < now_ms).all(), "nothing leaves before it was logged"
    delivery.release(np.arange(some.hosts))
    while (delivery.reached_ms < now_ms).any():
        now_ms += 500
        sent.append(delivery.step(now_ms))
    last_of: dict[int, int] = {}
    for part in sent:
        for host, at_ms in zip(part.host.tolist(), part.at_ms.tolist(), strict=True):
            assert at_ms >= last_of.get(host, 0)
            last_of[host] = at_ms
    found = Counter(line for part in sent for line in as_json(some, part))
    windows = [window_events(some, START_MS + number * WINDOW_MS, WINDOW_MS) for number in range(6)]
    logged = Counter(line for events in windows for line in as_json(some, events))
    assert logged <= found
    beyond = found - logged
    assert all(json.loads(line)["at"] >= START_MS + 6 * WINDOW_MS for line in beyond)
    assert delivery.logged[:6] == [len(events) for events in windows]


def test_a_stalled_host_keeps_what_it_logs_from_that_instant_on_and_catches_up_at_ten_times_the_speed(
    some: Fleet,
) -> None:
    delivery, hosts = Delivery(some, START_MS, WINDOW_MS), np.array([3, 4])
    delivery.stall(hosts, START_MS + np.array([1_500, 2_500]))
    early = [delivery.step(START_MS + at_ms) for at_ms in (1_000, 4_000)]
    for host, from_ms in ((3, 1_500), (4, 2_500)):
        left_ms = np.concatenate([part.at_ms[part.host == host] for part in early])
        assert delivery.reached_ms[host] == START_MS + from_ms
        assert left_ms.size == 0 or left_ms.max() < START_MS + from_ms
    delivery.release(hosts)
    delivery.step(START_MS + 4_100)
    assert delivery.reached_ms[[3, 4]].tolist() == [
        START_MS + from_ms + 100 * CATCH_UP_SPEED for from_ms in (1_500, 2_500)
    ]
    delivery.step(START_MS + 4_500)
    assert set(delivery.reached_ms.tolist()) == {START_MS + 4_500}


def test_the_ledger_is_the_recount_of_the_topic(some: Fleet) -> None:
    broker, clock = MemoryBroker(), ManualClock(START_MS)
    MemoryAdmin(broker).create_topic("logs", PARTITIONS)
    stream = HostStream(
        some,
        MemoryProducer(broker),
        "logs",
        clock,
        start_ms=START_MS,
        window_ms=WINDOW_MS,
        tick_s=0.001,
    )
    stream.start()
    half_ms = START_MS + WINDOW_MS // 2
    clock.advance_ms(WINDOW_MS // 2)
    _wait_for(stream, half_ms)
    clock.advance_ms(WINDOW_MS)
    _wait_for(stream, half_ms + WINDOW_MS)
    stream.finish()
    logs = broker.logs("logs")
    assert stream.ledger.ends == {partition: len(log.records) for partition, log in enumerate(logs)}
    found: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    windows: Counter[int] = Counter()
    partitions: dict[str, set[int]] = defaultdict(set)
    for partition, log in enumerate(logs):
        for record in log.records:
            assert record.value is not None
            event = json.loads(record.value)
            key = (event["host"], event["status"])
            found[key] = (found[key][0] + 1, found[key][1] + event["bytes_sent"])
            windows[(event["at"] - START_MS) // WINDOW_MS] += 1
            partitions[event["host"]].add(partition)
    assert stream.ledger.recount() == found
    assert stream.ledger.total == sum(windows.values())
    assert all(len(of_one) == 1 for of_one in partitions.values()), "a host logs to one partition"
    assert (stream.sent(0), stream.sent(1)) == (windows[0], windows[1])
    assert stream.all_out(0)
    assert not stream.all_out(1)
    assert 0 < stream.sent(0, half_ms) < stream.sent(0) == stream.logged(0)


def test_a_stream_that_broke_says_so(some: Fleet) -> None:
    class Broken(MemoryProducer):
        def produce(self, topic: str, records: list[OutRecord], **_: object) -> None:  # type: ignore[override]
            raise Unavailable("no broker")

    clock = ManualClock(START_MS + 1_000)
    stream = HostStream(
        some, Broken(MemoryBroker()), "logs", clock, start_ms=START_MS, window_ms=WINDOW_MS, tick_s=0.001
    )
    stream.start()
    stream.join(DEADLINE_S)
    with pytest.raises(Unavailable, match="no broker"):
        stream.all_out(0)
    with pytest.raises(Unavailable, match="no broker"):
        stream.finish()


def _wait_for(stream: HostStream, instant_ms: int) -> None:
    """Wait until the stream has sent all up to that instant."""
    until(lambda: (stream.reached_ms() >= instant_ms).all(), "the stream stands still")
