"""The partitions that are being moved, as brokers describe them at a moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import (
    Partition,
    PartitionDescription,
    Replica,
    RunningReassignment,
)


class Held(NamedTuple):
    path: str
    size_bytes: int


class Disk(NamedTuple):
    """total_bytes, usable_bytes: None where the broker does not say."""

    total_bytes: int | None
    usable_bytes: int | None
    offline: bool
    cordoned: bool


@dataclass(frozen=True)
class Look:
    """alive: brokers that serve, with their racks. partitions: those asked for that there are. held: where
    replicas are; coming: where they are being copied to from another disk of their broker. told: brokers that
    have told their log directories."""

    alive: dict[int, str | None]
    partitions: dict[Partition, PartitionDescription]
    running: dict[Partition, RunningReassignment]
    held: dict[Replica, Held] = field(default_factory=dict)
    coming: dict[Replica, Held] = field(default_factory=dict)
    disks: dict[tuple[int, str], Disk] = field(default_factory=dict)
    told: frozenset[int] = frozenset()

    def lost_dir(self, broker: int, path: str) -> str | None:
        """Say so if the broker tells its log directories, and this one is not among those that work."""
        disk = self.disks.get((broker, path))
        if broker not in self.told or (disk is not None and not disk.offline):
            return None
        return f"log directory {path} of broker {broker} is not there"


def look_at(administration: FleetAdministration, partitions: Collection[Partition]) -> Look:
    """Reassignments are asked for before partitions: one that ends in between is told as no longer running,
    and the partition as it is then or later."""
    alive = {
        broker.broker_id: broker.rack
        for broker in administration.describe_cluster().brokers
        if not broker.fenced
    }
    running = administration.running_reassignments(partitions)
    described = describe(administration, partitions)
    held: dict[Replica, Held] = {}
    coming: dict[Replica, Held] = {}
    disks: dict[tuple[int, str], Disk] = {}
    told: set[int] = set()
    for broker_id, of_broker in administration.describe_log_dirs(list(alive), partitions).items():
        if of_broker.missing is not None:
            continue
        told.add(broker_id)
        for log_dir in of_broker.log_dirs:
            disks[broker_id, log_dir.path] = Disk(
                log_dir.total_bytes, log_dir.usable_bytes, log_dir.offline, log_dir.cordoned
            )
            for replica in log_dir.replicas:
                found = coming if replica.future else held
                found[Replica(replica.partition, broker_id)] = Held(log_dir.path, replica.size_bytes)
    return Look(alive, described, running, held, coming, disks, frozenset(told))


def describe(
    administration: FleetAdministration, partitions: Collection[Partition]
) -> dict[Partition, PartitionDescription]:
    wanted = set(partitions)
    topics = administration.describe_topics({partition.topic for partition in wanted})
    return {
        Partition(name, described.number): described
        for name, topic in topics.items()
        for described in topic.partitions
        if Partition(name, described.number) in wanted
    }
