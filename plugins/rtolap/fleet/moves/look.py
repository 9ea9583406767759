"""The partitions that are being moved, as brokers describe them at one moment."""

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


class PlacedReplica(NamedTuple):
    path: str
    size_bytes: int


class BrokerDisk(NamedTuple):
    """A disk of a broker.

    Attributes:
        total_bytes: Size. None where the broker does not report it.
        usable_bytes: Free bytes. None where the broker does not report them.
        offline: The broker has given the directory up.
        cordoned: The directory takes no new replicas.
    """

    total_bytes: int | None
    usable_bytes: int | None
    offline: bool
    cordoned: bool


@dataclass(frozen=True)
class Look:
    """The state of the requested partitions at one moment.

    Attributes:
        alive: Brokers that serve, with their racks.
        partitions: Those of the requested partitions that exist.
        running: Reassignments that Kafka carries out.
        replicas: Directory and size of each replica.
        coming: Directory and size of each future replica, to which its broker copies from another disk.
        disks: Disks by broker and path.
        reporting: Brokers that have reported their log directories.
    """

    alive: dict[int, str | None]
    partitions: dict[Partition, PartitionDescription]
    running: dict[Partition, RunningReassignment]
    replicas: dict[Replica, PlacedReplica] = field(default_factory=dict)
    coming: dict[Replica, PlacedReplica] = field(default_factory=dict)
    disks: dict[tuple[int, str], BrokerDisk] = field(default_factory=dict)
    reporting: frozenset[int] = frozenset()

    def lost_dir(self, broker: int, path: str) -> str | None:
        """Return the reason if the broker reports its log directories and this one does not work."""
        disk = self.disks.get((broker, path))
        if broker not in self.reporting or (disk is not None and not disk.offline):
            return None
        return f"log directory {path} of broker {broker} is not there"


def look_at(administration: FleetAdministration, partitions: Collection[Partition]) -> Look:
    """Return the state of these partitions.

    Reassignments are read before partitions. A reassignment that ends in between therefore counts as ended,
    and the partition is described as it is at that time or later.
    """
    alive = {broker: each.rack for broker, each in administration.describe_cluster().serving.items()}
    running = administration.running_reassignments(partitions)
    described = describe(administration, partitions)
    replicas: dict[Replica, PlacedReplica] = {}
    coming: dict[Replica, PlacedReplica] = {}
    disks: dict[tuple[int, str], BrokerDisk] = {}
    reporting: set[int] = set()
    for broker_id, of_broker in administration.describe_log_dirs(list(alive), partitions).items():
        if of_broker.missing is not None:
            continue
        reporting.add(broker_id)
        for log_dir in of_broker.log_dirs:
            disks[broker_id, log_dir.path] = BrokerDisk(
                log_dir.total_bytes, log_dir.usable_bytes, log_dir.offline, log_dir.cordoned
            )
            for replica in log_dir.replicas:
                found = coming if replica.future else replicas
                found[Replica(replica.partition, broker_id)] = PlacedReplica(log_dir.path, replica.size_bytes)
    return Look(alive, described, running, replicas, coming, disks, frozenset(reporting))


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
