"""A cluster in memory whose replicas move by as many bytes as `advance` lets them.

Deterministic. Copies obey throttles as brokers do: a rate binds what a broker sends and takes of the replicas
that its topics list, replicas in sync are never bound, and what no rate binds goes at the speed of the
network. A broker that is not alive sends and takes nothing; a stuck partition copies nothing; a copy that
fills its disk takes the log directory offline.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rtolap.base.errors import NotFound, Refused, RtolapError
from rtolap.kafka.administration.interface import ActiveProducer, GroupMember, ListedGroup
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    MIN_IN_SYNC,
    NO_BROKER,
    NO_OFFSET,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
    Replica,
)

NETWORK_BYTES_PER_S = 100_000_000
_EMPTY_LOG = {
    OffsetSpec.EARLIEST: 0,
    OffsetSpec.EARLIEST_LOCAL: 0,
    OffsetSpec.LATEST_TIERED: NO_OFFSET,
    OffsetSpec.LATEST: 0,
}


@dataclass
class MemoryDisk:
    total_bytes: int
    offline: bool = False
    cordoned: bool = False


@dataclass
class MemoryBroker:
    broker_id: int
    rack: str | None
    disks: dict[str, MemoryDisk]
    alive: bool = True
    silent: bool = False  # it does not tell its log directories


@dataclass
class MemoryPartition:
    size_bytes: int
    leader: int
    replicas: list[int]
    in_sync: set[int]
    adding: set[int] = field(default_factory=set)
    target: list[int] | None = None
    stuck: bool = False
    offsets: dict[OffsetSpec, int] = field(default_factory=lambda: dict(_EMPTY_LOG))
    written_bytes_per_s: int = 0


@dataclass
class MemoryReplica:
    path: str
    size_bytes: int
    future_path: str | None = None
    future_bytes: int = 0


@dataclass
class MemoryGroup:
    """A consumer group. listed: what a list tells of it."""

    listed: ListedGroup
    members: tuple[GroupMember, ...] = ()
    committed: dict[Partition, int] = field(default_factory=dict)


class MemoryCluster:
    """The state, with what plays faults and time. Several administrations may look at one."""

    def __init__(self, cluster_id: str = "memory") -> None:
        self.cluster_id = cluster_id
        self.brokers: dict[int, MemoryBroker] = {}
        self._forgotten: dict[int, MemoryBroker] = {}
        self.partitions: dict[Partition, MemoryPartition] = {}
        self.replicas: dict[Replica, MemoryReplica] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.inherited = {MIN_IN_SYNC: "1"}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.producers: dict[Partition, tuple[ActiveProducer, ...]] = {}
        self.forbidden: set[str] = set()  # names of calls
        self.missing_rights: set[str] = set()  # in words, as they are told
        self.answers = True
        self.lock = threading.RLock()

    def add_broker(
        self, broker_id: int, rack: str | None = None, disks: Mapping[str, int] | None = None
    ) -> None:
        known = disks or {"/d0": 10**12, "/d1": 10**12}
        self.brokers[broker_id] = MemoryBroker(
            broker_id, rack, {path: MemoryDisk(total) for path, total in known.items()}
        )

    def add_partition(
        self, partition: Partition, replicas: Sequence[int], size_bytes: int = 0, path: str | None = None
    ) -> None:
        self.partitions[partition] = MemoryPartition(
            size_bytes, replicas[0], list(replicas), set(replicas), set()
        )
        for broker in replicas:
            self.replicas[Replica(partition, broker)] = MemoryReplica(
                path or self._roomiest(broker), size_bytes
            )

    def remove_topic(self, topic: str) -> None:
        for partition in [known for known in self.partitions if known.topic == topic]:
            del self.partitions[partition]
        for replica in [known for known in self.replicas if known.partition.topic == topic]:
            del self.replicas[replica]
        self.configs.pop(ConfigResource(ConfigKind.TOPIC, topic), None)

    def topics(self) -> set[str]:
        return {partition.topic for partition in self.partitions}

    def used_bytes(self, broker: int, path: str) -> int:
        used = 0
        for replica, held in self.replicas.items():
            if replica.broker == broker:
                used += held.size_bytes * (held.path == path)
                used += held.future_bytes * (held.future_path == path)
        return used

    def used_bytes_of_dirs(self) -> Counter[tuple[int, str]]:
        used: Counter[tuple[int, str]] = Counter()
        for replica, held in list(self.replicas.items()):
            used[replica.broker, held.path] += held.size_bytes
            if held.future_path is not None:
                used[replica.broker, held.future_path] += held.future_bytes
        return used

    def stop_broker(self, broker_id: int) -> None:
        if broker_id in self._forgotten:
            return
        self.brokers[broker_id].alive = False
        for partition in self.partitions.values():
            if len(partition.in_sync) > 1:
                partition.in_sync.discard(broker_id)
        self._lead()

    def start_broker(self, broker_id: int) -> None:
        if broker_id in self._forgotten:
            self.brokers[broker_id] = self._forgotten.pop(broker_id)
        self.brokers[broker_id].alive = True
        self._lead()

    def forget_broker(self, broker_id: int) -> None:
        """Forget one that holds nothing; it registers again when it starts."""
        with self.lock:
            if any(replica.broker == broker_id for replica in self.replicas):
                raise ValueError(f"broker {broker_id} holds replicas: this cluster does not play that")
            if broker_id in self.brokers:
                self._forgotten[broker_id] = self.brokers.pop(broker_id)

    def advance(self, seconds: float) -> None:
        """Write and copy what goes in that time, complete what is complete."""
        with self.lock:
            self._write(seconds)
            self._copy_between_brokers(seconds)
            self._copy_between_disks(seconds)
            for partition in list(self.partitions):
                self._complete(partition)
            self._lead()

    def settle(self) -> None:
        """Elect and complete without copying anything."""
        self.advance(0.0)

    def _write(self, seconds: float) -> None:
        """Write at once to the replicas that are in sync; no throttle binds them."""
        for partition, known in self.partitions.items():
            written_bytes = int(known.written_bytes_per_s * seconds)
            if written_bytes and known.leader != NO_BROKER:
                known.size_bytes += written_bytes
                for broker in known.in_sync:
                    self.replicas[Replica(partition, broker)].size_bytes += written_bytes

    # -- copying ----------------------------------------------------------------------------------------

    def _copy_between_brokers(self, seconds: float) -> None:
        copying = [
            (replica, self.partitions[replica.partition])
            for replica in sorted(filter(self._copies, self.replicas))
        ]
        sent = Counter((known.leader, self._bound(replica, known)) for replica, known in copying)
        taken = Counter((replica.broker, self._bound(replica, known)) for replica, known in copying)
        for replica, known in copying:
            bound = self._bound(replica, known)
            rate = min(
                self._rate(known.leader, LEADER_RATE, bound) / sent[known.leader, bound],
                self._rate(replica.broker, FOLLOWER_RATE, bound) / taken[replica.broker, bound],
            )
            held = self.replicas[replica]
            wanted = min(int(rate * seconds), known.size_bytes - held.size_bytes)
            held.size_bytes += self._room(replica.broker, held.path, wanted)
            if held.size_bytes >= known.size_bytes:
                known.in_sync.add(replica.broker)

    def _copies(self, replica: Replica) -> bool:
        known = self.partitions[replica.partition]
        held = self.replicas[replica]
        broker = self.brokers[replica.broker]
        return (
            replica.broker not in known.in_sync
            and known.leader != NO_BROKER
            and not known.stuck
            and broker.alive
            and not broker.disks[held.path].offline
        )

    def _bound(self, replica: Replica, known: MemoryPartition) -> bool:
        """Tell whether a throttle binds the copy."""
        values = self.configs.get(ConfigResource(ConfigKind.TOPIC, replica.partition.topic), {})
        number = replica.partition.number
        leaders, followers = values.get(LEADER_REPLICAS, ""), values.get(FOLLOWER_REPLICAS, "")
        return f"{number}:{known.leader}" in leaders.split(",") or (
            f"{number}:{replica.broker}" in followers.split(",")
        )

    def _rate(self, broker: int, name: str, bound: bool) -> float:
        own = self.configs.get(ConfigResource(ConfigKind.BROKER, str(broker)), {}).get(name)
        value = own or self.configs.get(ALL_BROKERS, {}).get(name)
        return min(float(value), NETWORK_BYTES_PER_S) if bound and value else NETWORK_BYTES_PER_S

    def _copy_between_disks(self, seconds: float) -> None:
        moving = sorted(replica for replica, held in self.replicas.items() if held.future_path)
        shares = Counter(replica.broker for replica in moving)
        for replica in moving:
            held = self.replicas[replica]
            broker = self.brokers[replica.broker]
            path = held.future_path
            assert path is not None
            if not broker.alive or broker.disks[path].offline or self.partitions[replica.partition].stuck:
                continue
            rate = self._rate(replica.broker, LOG_DIRS_RATE, True) / shares[replica.broker]
            wanted = min(int(rate * seconds), held.size_bytes - held.future_bytes)
            held.future_bytes += self._room(replica.broker, path, wanted)
            if held.future_bytes >= held.size_bytes:
                held.path, held.future_path, held.future_bytes = path, None, 0

    def _room(self, broker: int, path: str, wanted: int) -> int:
        """Return as much of it as the disk takes; one that is full takes its directory offline."""
        disk = self.brokers[broker].disks[path]
        left = disk.total_bytes - self.used_bytes(broker, path)
        if wanted > left:
            disk.offline = True
        return max(0, min(wanted, left))

    def _complete(self, partition: Partition) -> None:
        known = self.partitions[partition]
        if known.target is None or not set(known.target) <= known.in_sync:
            return
        for broker in set(known.replicas) - set(known.target):
            self.replicas.pop(Replica(partition, broker), None)
        known.replicas, known.in_sync = list(known.target), known.in_sync & set(known.target)
        known.target, known.adding = None, set()

    def _lead(self) -> None:
        for known in self.partitions.values():
            able = [b for b in known.replicas if b in known.in_sync and self.brokers[b].alive]
            if known.leader not in able:
                known.leader = able[0] if able else NO_BROKER

    def _roomiest(self, broker: int) -> str:
        disks = self.brokers[broker].disks
        open_ = [path for path, disk in disks.items() if not disk.offline and not disk.cordoned]
        hosted = Counter(held.path for replica, held in self.replicas.items() if replica.broker == broker)
        return min(open_ or list(disks), key=lambda path: (hosted[path], path))

    # -- reassignments ----------------------------------------------------------------------------------

    def begin(self, partition: Partition, target: Sequence[int]) -> RtolapError | None:
        known = self.partitions.get(partition)
        if known is None:
            return NotFound(f"cannot reassign {partition}: it is not there")
        if len(set(target)) != len(target) or not target or not set(target) <= set(self.brokers):
            return Refused(f"Kafka refuses to reassign {partition}", found=list(target))
        before = list(known.replicas)
        if set(target) == set(before) and known.target is None:
            known.replicas = list(target)  # another order takes no copy, whoever is in sync
            return None
        known.adding = {broker for broker in target if broker not in before or broker in known.adding}
        for broker in target:
            if broker not in before:
                path = self._roomiest(broker)
                self.replicas[Replica(partition, broker)] = MemoryReplica(path, 0)
        known.target = list(target)
        known.replicas = [*target, *(broker for broker in before if broker not in target)]
        self._complete(partition)
        self._lead()
        return None

    def cancel(self, partition: Partition) -> RtolapError | None:
        known = self.partitions.get(partition)
        if known is None:
            return NotFound(f"cannot cancel {partition}: it is not there")
        if known.target is None:
            return None
        former = [broker for broker in known.replicas if broker not in known.adding]
        if not known.in_sync & set(former):
            return Refused(f"Kafka refuses to cancel {partition}: no former replica is in sync")
        for broker in known.adding:
            self.replicas.pop(Replica(partition, broker), None)
        known.replicas, known.in_sync = former, known.in_sync & set(former)
        known.target, known.adding = None, set()
        self._lead()
        return None
