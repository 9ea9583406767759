"""The audit of topics: whose they are, where their replicas stand, and how many are to be in sync."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from rtolap.fleet.isolation.findings import (
    Finding,
    FindingKind,
    Severity,
    TopicUsers,
    by_topic,
    numbers_of,
    some,
)
from rtolap.fleet.isolation.placement import PlacementRules
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, Int32s, Int64s, ReplicaState
from rtolap.model.fleet import KafkaFleet, first_matches


def misplaced_topics(fleet: KafkaFleet, name: str, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics, by name, that have an owner and that the cluster `name` does not take."""
    names = sorted(topics)
    owners = first_matches(names, [owner.match for owner in fleet.topics])
    takes = fleet.clusters[name].takes
    return tuple(
        topic
        for topic, place in zip(names, owners, strict=True)
        if place is not None and not takes(fleet.topics[place])
    )


def owner_findings(
    fleet: KafkaFleet, name: str, topics_of: Mapping[str, frozenset[str]], users: Mapping[str, TopicUsers]
) -> Iterator[Finding]:
    """Yield the findings about owners. `topics_of` has the topics of each cluster whose snapshot is there;
    `users` those of misplaced topics."""
    topics = sorted(topics_of[name])
    owners = first_matches(topics, [owner.match for owner in fleet.topics])
    for topic, place in zip(topics, owners, strict=True):
        if place is None:
            yield Finding(
                kind=FindingKind.NO_OWNER,
                severity=Severity.INFO,
                subject=topic,
                message="nobody owns the topic",
                expected="a pattern of the registry that matches it",
                found="none",
                repair="declare its owner under `topics`, or drop it",
            )
            continue
        owner = fleet.topics[place]
        if fleet.clusters[name].takes(owner):
            continue
        right = [each for each, cluster in fleet.clusters.items() if cluster.takes(owner)]
        also = [each for each in right if topic in topics_of.get(each, frozenset())]
        whose = owner.business if owner.priority is None else f"{owner.business}, priority {owner.priority}"
        yield Finding(
            kind=FindingKind.WRONG_CLUSTER,
            severity=Severity.WARNING,
            subject=topic,
            message=f"a topic of {whose} stands in the wrong cluster",
            expected=" or ".join(right),
            found=f"{name}, and {', '.join(also)} too" if also else name,
            repair=f"mirror it to {right[0]}, move its producers and consumers, and drop it here",
            users=users.get(topic),
        )


def placement_findings(name: str, snapshot: FleetSnapshot, placement: PlacementRules) -> Iterator[Finding]:
    replicas, topics = snapshot.replicas, snapshot.topics.names
    there = snapshot.brokers.states != BrokerState.ABSENT
    reachable = (placement.allowed_by_rule & there).sum(axis=1)
    for topic in np.flatnonzero(reachable[placement.rules] == 0).tolist():
        yield Finding(
            kind=FindingKind.NO_BROKER_ALLOWED,
            severity=Severity.WARNING,
            subject=topics[topic],
            message="no broker of the cluster may hold the topic",
            expected="a placement rule whose brokers are there",
            found="none of them",
            repair="mend the rule or its pool in the registry",
        )
    of_topic = snapshot.partitions.topics[replicas.partitions]
    misplaced = ~placement.allowed_by_rule[placement.rules[of_topic], replicas.brokers]
    misplaced &= replicas.states != ReplicaState.REMOVING
    misplaced &= reachable[placement.rules[of_topic]] > 0
    rows = np.flatnonzero(misplaced)
    starts = np.flatnonzero(np.diff(of_topic[rows], prepend=-1))
    for found_rows in np.split(rows, starts[1:]) if len(rows) else ():
        topic = int(of_topic[found_rows[0]])
        partitions = np.unique(replicas.partitions[found_rows]).astype(np.int64)
        ids = snapshot.brokers.ids[np.unique(replicas.brokers[found_rows])].tolist()
        allowed = snapshot.brokers.ids[placement.allowed_by_rule[placement.rules[topic]] & there].tolist()
        yield Finding(
            kind=FindingKind.PLACEMENT,
            severity=Severity.WARNING,
            subject=topics[topic],
            message=f"{len(partitions)} partitions stand on brokers where they may not",
            expected=f"brokers {some(allowed)}",
            found=f"brokers {some(ids)}",
            repair=f"rtolap fleet plan placement {name}",
            partitions=numbers_of(snapshot, partitions),
            brokers=tuple(ids),
        )


def min_in_sync_in_force(snapshot: FleetSnapshot, placement: PlacementRules) -> Int32s:
    """Return what each topic has; what is declared, where the snapshot does not say."""
    live = snapshot.topics.min_in_sync
    return np.where(live == UNKNOWN, placement.min_in_sync, live).astype(np.int32)


def factor_findings(snapshot: FleetSnapshot, placement: PlacementRules) -> Iterator[Finding]:
    replicas, topics = snapshot.replicas, snapshot.partitions.topics
    staying = replicas.states != ReplicaState.REMOVING
    counts = np.bincount(replicas.partitions[staying], minlength=len(topics))
    for topic, rows in by_topic(snapshot, _rows(counts < placement.factors[topics])):
        yield Finding(
            kind=FindingKind.REPLICATION_FACTOR,
            severity=Severity.WARNING,
            subject=snapshot.topics.names[topic],
            message=f"{len(rows)} partitions have fewer replicas than declared",
            expected=f"{int(placement.factors[topic])} replicas",
            found=f"{int(counts[rows].min())}",
            repair=f"rtolap fleet plan factor {int(placement.factors[topic])} "
            f"--topic {snapshot.topics.names[topic]}",
            partitions=numbers_of(snapshot, rows),
        )
    yield from _min_in_sync(snapshot, placement, counts)
    in_force = min_in_sync_in_force(snapshot, placement)
    in_sync = np.bincount(replicas.partitions[replicas.in_sync], minlength=len(topics))
    for topic, rows in by_topic(snapshot, _rows(in_sync < in_force[topics])):
        yield Finding(
            kind=FindingKind.NOT_WRITABLE,
            severity=Severity.CRITICAL,
            subject=snapshot.topics.names[topic],
            message=f"{len(rows)} partitions cannot be written with acks=all",
            expected=f"{int(in_force[topic])} replicas in sync",
            found=f"{int(in_sync[rows].min())}",
            repair="bring their brokers back, or rtolap fleet plan drain of those that stay away",
            partitions=numbers_of(snapshot, rows),
        )


def _min_in_sync(snapshot: FleetSnapshot, placement: PlacementRules, counts: Int64s) -> Iterator[Finding]:
    """Yield topics whose writes end with one broker, before topics that merely differ from what is
    declared.
    """
    live = snapshot.topics.min_in_sync
    fewest = np.full(len(live), np.iinfo(np.int64).max)
    np.minimum.at(fewest, snapshot.partitions.topics, counts)
    known = (live != UNKNOWN) & (fewest < np.iinfo(np.int64).max)
    tight = known & (live >= fewest) & ((fewest > 1) | (live > 1))
    differs = known & ~tight & (live != placement.min_in_sync)
    for topic in np.flatnonzero(tight | differs).tolist():
        wanted = int(placement.min_in_sync[topic])
        topic_name = snapshot.topics.names[topic]
        yield Finding(
            kind=FindingKind.MIN_IN_SYNC,
            severity=Severity.CRITICAL if tight[topic] else Severity.WARNING,
            subject=topic_name,
            message="nobody can write while one of its brokers is away"
            if tight[topic]
            else "min.insync.replicas is not as declared",
            expected=f"min.insync.replicas={wanted}",
            found=f"{int(live[topic])} with {int(fewest[topic])} replicas",
            repair=f"kafka-configs --alter --topic {topic_name} --add-config min.insync.replicas={wanted}",
        )


def _rows(which: np.ndarray) -> Int64s:
    return np.flatnonzero(which).astype(np.int64)
