"""The audit of drawn fleets equals a plain count, replica by replica."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from rtolap.fleet.isolation.audit import audit
from rtolap.fleet.isolation.findings import FindingKind
from rtolap.fleet.snapshot.model import BrokerState, FleetSnapshot, ReplicaState
from rtolap.model.fleet import BrokerPool, FleetCluster, KafkaFleet, PlacementRule, TopicOwner

from tests.support.fleet.random_fleets import random_fleet
from tests.support.seeds import so_many

FLEETS = so_many(80, 150)
FACTOR, MIN_IN_SYNC = 3, 2
Told = dict[tuple[FindingKind, str], set[int]]
K = FindingKind


def recount(snapshot: FleetSnapshot, pool: set[int], pooled: str) -> Told:
    brokers, replicas, told = snapshot.brokers, snapshot.replicas, defaultdict[tuple[K, str], set[int]](set)
    ids = brokers.ids.tolist()
    rack = dict(zip(ids, brokers.racks, strict=True))
    there = {broker for row, broker in enumerate(ids) if brokers.states[row] != BrokerState.ABSENT}
    for partition in range(len(snapshot.partitions)):
        topic = snapshot.topics.names[snapshot.partitions.topics[partition]]
        number = int(snapshot.partitions.numbers[partition])
        rows = range(
            int(snapshot.partitions.first_replicas[partition]),
            int(snapshot.partitions.first_replicas[partition + 1]),
        )
        staying = [
            ids[replicas.brokers[row]] for row in rows if replicas.states[row] != ReplicaState.REMOVING
        ]
        in_sync = [ids[replicas.brokers[row]] for row in rows if replicas.in_sync[row]]
        allowed = pool if topic == pooled else set(ids) - pool
        if allowed & there and not set(staying) <= allowed:
            told[K.PLACEMENT, topic].add(number)
        if len(staying) < FACTOR:
            told[K.REPLICATION_FACTOR, topic].add(number)
        live = int(snapshot.topics.min_in_sync[snapshot.partitions.topics[partition]])
        least = MIN_IN_SYNC if live < 0 else live
        if len(in_sync) < least:
            told[K.NOT_WRITABLE, topic].add(number)
        racks = {rack[broker] for broker in staying} - {None}
        reach = {rack[broker] for broker in allowed & there} - {None}
        placed = [broker for broker in staying if rack[broker] is not None]
        if len(racks) < min(len(placed), len(reach)):
            told[K.SHARED_RACK, topic].add(number)
        for lost in set(rack.values()) - {None}:
            left = [broker for broker in in_sync if rack[broker] != lost]
            if len(in_sync) >= least and len(left) < max(least, 1):
                told[K.RACK_LOSS, topic].add(number)
    return dict(told)


@pytest.mark.seeded
def test_the_audit_equals_a_plain_count() -> None:
    met: Counter[K] = Counter()
    for seed in range(FLEETS):
        snapshot = random_fleet(seed)
        pool = set(snapshot.brokers.ids[::3].tolist())
        pooled = snapshot.topics.names[0]
        cluster = FleetCluster(
            businesses=("shop",),
            roles="combined",
            replication_factor=FACTOR,
            min_in_sync=MIN_IN_SYNC,
            pools={"own": BrokerPool(tuple(sorted(pool)))},
            placement=(PlacementRule((pooled,), ("own",)),),
        )
        fleet = KafkaFleet("f", {"one": cluster}, (TopicOwner(("*",), "shop"),))
        expected = recount(snapshot, pool, pooled)
        kinds = {kind for kind, _ in expected} | {
            *(K.PLACEMENT, K.REPLICATION_FACTOR, K.NOT_WRITABLE, K.SHARED_RACK, K.RACK_LOSS)
        }
        found = {
            (each.kind, each.subject): set(each.partitions)
            for each in audit(fleet, {"one": snapshot}).findings
            if each.kind in kinds
        }
        assert found == expected, f"seed {seed}"
        met.update(kind for kind, _ in expected)
    assert set(met) == {K.PLACEMENT, K.REPLICATION_FACTOR, K.NOT_WRITABLE, K.SHARED_RACK, K.RACK_LOSS}
