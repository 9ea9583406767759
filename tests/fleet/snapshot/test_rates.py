"""Rates of partitions: what brokers tell of topics, divided, held against a plain division one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import IncompleteSnapshot
from rtolap.fleet.planning.leaders_by_load import plan_leaders_by_load
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load, save
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot
from rtolap.fleet.snapshot.rates import TopicRates, divided
from rtolap.kafka.administration.values import Partition

from tests.support.fleet.random_fleets import random_fleet
from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock

Told = dict[tuple[int, str], tuple[float, float]]


def rates_of(told: Told, answered: Collection[int], missing: dict[int, str] | None = None) -> TopicRates:
    return TopicRates(
        np.array([broker for broker, _ in told], np.int32),
        tuple(topic for _, topic in told),
        np.array([into for into, _ in told.values()], np.float64),
        np.array([out for _, out in told.values()], np.float64),
        frozenset(answered),
        missing or {},
    )


def one_by_one(snapshot: FleetSnapshot, told: Told, answered: set[int]) -> list[tuple[float, float]]:
    partitions, replicas, first = (
        snapshot.partitions,
        snapshot.replicas,
        snapshot.partitions.first_replicas,
    )
    led: dict[tuple[int, str], list[int]] = defaultdict(list)
    held: dict[int, int] = {}
    for row in range(len(partitions)):
        if partitions.leaders[row] == UNKNOWN:
            continue
        broker = int(snapshot.brokers.ids[partitions.leaders[row]])
        led[broker, snapshot.topics.names[partitions.topics[row]]].append(row)
        held[row] = next(
            int(replicas.size_bytes[at])
            for at in range(first[row], first[row + 1])
            if replicas.brokers[at] == partitions.leaders[row]
        )
    rates = [(np.nan, np.nan)] * len(partitions)
    for (broker, topic), rows in led.items():
        if broker not in answered:
            continue
        sizes = [held[row] for row in rows]
        if UNKNOWN in sizes or not sum(sizes):
            sizes = [1] * len(rows)
        into, out = told.get((broker, topic), (0.0, 0.0))
        for row, size in zip(rows, sizes, strict=True):
            rates[row] = (into * size / sum(sizes), out * size / sum(sizes))
    return rates


@pytest.mark.parametrize("seed", range(12))
def test_each_partition_gets_what_a_plain_division_gives_it(seed: int) -> None:
    snapshot = random_fleet(seed)
    rng = np.random.default_rng(seed)
    ids = snapshot.brokers.ids.tolist()
    answered = {broker for broker in ids if rng.random() < 0.8}
    told = {
        (broker, topic): (float(rng.integers(0, 10**6)), float(rng.integers(0, 10**6)))
        for broker in sorted(answered)
        for topic in (*snapshot.topics.names, "gone")
        if rng.random() < 0.7
    }
    told[10**6, snapshot.topics.names[0]] = (1.0, 1.0)  # of a broker that the snapshot has not
    found = divided(
        rates_of(told, answered), snapshot.brokers, snapshot.topics, snapshot.partitions, snapshot.replicas
    )
    expected = np.array(one_by_one(snapshot, told, answered)).reshape(-1, 2)
    np.testing.assert_allclose(np.stack(found, axis=1), expected, rtol=1e-9)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster("fleet")
    for broker in (1, 2, 3):
        made.add_broker(broker)
    made.add_partition(Partition("orders", 0), [1, 2], 300, "/d0")
    made.add_partition(Partition("orders", 1), [1, 3], 100, "/d0")
    made.add_partition(Partition("audit", 0), [2, 1], 900, "/d0")
    return made


def test_brokers_that_lead_are_asked_once_and_what_they_tell_stands_in_the_file(
    cluster: MemoryCluster, tmp_path: Path
) -> None:
    asked: list[list[int]] = []

    def reader(brokers: Collection[int]) -> TopicRates:
        asked.append(list(brokers))
        return rates_of({(1, "orders"): (400.0, 80.0)}, brokers)

    snapshot = collect_snapshot(MemoryAdministration(cluster), ManualClock(7), reader)
    assert asked == [[1, 2]]
    assert snapshot.missing == ()
    assert snapshot.partitions.bytes_in_per_s.tolist() == [0.0, 300.0, 100.0]
    assert snapshot.partitions.bytes_out_per_s.tolist() == [0.0, 60.0, 20.0]
    save(snapshot, tmp_path / "fleet")
    again = load(tmp_path / "fleet").partitions
    assert again.bytes_in_per_s.tolist() == snapshot.partitions.bytes_in_per_s.tolist()
    assert again.bytes_out_per_s.tolist() == snapshot.partitions.bytes_out_per_s.tolist()


def test_a_broker_without_metrics_is_named_with_the_plans_that_it_forbids(cluster: MemoryCluster) -> None:
    def reader(brokers: Collection[int]) -> TopicRates:
        return rates_of({(2, "audit"): (5.0, 5.0)}, [2], {1: "HTTP status 500"})

    snapshot = collect_snapshot(MemoryAdministration(cluster), ManualClock(7), reader)
    (fact,) = snapshot.missing
    assert (fact.fact, fact.reason) == ("rates of the 2 partitions that broker 1 leads", "HTTP status 500")
    assert fact.forbids == ("leaders-by-load",)
    assert np.isnan(snapshot.partitions.bytes_in_per_s).tolist() == [False, True, True]
    with pytest.raises(IncompleteSnapshot, match="HTTP status 500"):
        plan_leaders_by_load(snapshot)


def test_without_a_source_all_rates_are_missing(cluster: MemoryCluster) -> None:
    snapshot = collect_snapshot(MemoryAdministration(cluster), ManualClock(7))
    (fact,) = snapshot.missing
    assert fact.fact == "rates of partitions"
    assert "--sources" in fact.reason
    assert np.isnan(snapshot.partitions.bytes_out_per_s).all()
