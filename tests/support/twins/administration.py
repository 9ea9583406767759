"""The administration's twin: it asks a `MemoryCluster`, and has no state of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rtolap.base.errors import Forbidden, NotFound, RtolapError, Unavailable
from rtolap.kafka.administration.interface import Outcomes
from rtolap.kafka.administration.values import (
    CORDONED_LOG_DIRS,
    NO_BROKER,
    BrokerDescription,
    BrokerLogDirs,
    ClientQuota,
    ClusterDescription,
    ConfigKind,
    ConfigResource,
    HostedReplica,
    LogDirDescription,
    OffsetSpec,
    Partition,
    PartitionDescription,
    Replica,
    Right,
    RunningReassignment,
    TopicDescription,
)

from tests.support.twins.administered_usage import MemoryUsage


class MemoryAdministration(MemoryUsage):
    """Implements `interface.FleetAdministration` on a `MemoryCluster`."""

    def describe_cluster(self) -> ClusterDescription:
        self._reach("describe_cluster")
        brokers = sorted(self._cluster.brokers.values(), key=lambda broker: broker.broker_id)
        alive = [broker.broker_id for broker in brokers if broker.alive]
        return ClusterDescription(
            self._cluster.cluster_id,
            alive[0] if alive else NO_BROKER,
            tuple(
                BrokerDescription(
                    broker.broker_id, f"host{broker.broker_id}", 9092, broker.rack, not broker.alive
                )
                for broker in brokers
            ),
        )

    def describe_topics(self, topics: Collection[str] | None = None) -> dict[str, TopicDescription]:
        self._reach("describe_topics")
        found: dict[str, list[PartitionDescription]] = {}
        asked = [known for known in list(self._cluster.partitions) if topics is None or known.topic in topics]
        for partition in sorted(asked):
            known = self._cluster.partitions[partition]
            in_sync = tuple(broker for broker in known.replicas if broker in known.in_sync)
            found.setdefault(partition.topic, []).append(
                PartitionDescription(partition.number, known.leader, tuple(known.replicas), in_sync)
            )
        return {
            name: TopicDescription(name, name.startswith("__"), tuple(partitions))
            for name, partitions in found.items()
        }

    def describe_log_dirs(
        self, brokers: Collection[int], partitions: Collection[Partition] | None = None
    ) -> dict[int, BrokerLogDirs]:
        self._reach("describe_log_dirs")
        wanted = None if partitions is None else set(partitions)
        asked: dict[int, list[Replica]] = {broker: [] for broker in sorted(brokers)}
        for replica in list(self._cluster.replicas):
            if replica.broker in asked and (wanted is None or replica.partition in wanted):
                asked[replica.broker].append(replica)
        used = self._cluster.used_bytes_of_dirs()
        return {broker: self._log_dirs(broker, replicas, used) for broker, replicas in asked.items()}

    def _log_dirs(
        self, broker_id: int, replicas: list[Replica], used_bytes: Mapping[tuple[int, str], int]
    ) -> BrokerLogDirs:
        broker = self._cluster.brokers.get(broker_id)
        if broker is None or not broker.alive or broker.silent:
            return BrokerLogDirs(broker_id, missing=Unavailable(f"broker {broker_id} does not answer"))
        hosted: dict[str, list[HostedReplica]] = {path: [] for path in broker.disks}
        for replica in sorted(replicas):
            held = self._cluster.replicas[replica]
            lag = self._cluster.partitions[replica.partition].size_bytes - held.size_bytes
            hosted[held.path].append(HostedReplica(replica.partition, held.size_bytes, lag, False))
            if held.future_path is not None:
                left = held.size_bytes - held.future_bytes
                hosted[held.future_path].append(
                    HostedReplica(replica.partition, held.future_bytes, left, True)
                )
        return BrokerLogDirs(
            broker_id,
            tuple(
                LogDirDescription(
                    path,
                    disk.total_bytes,
                    disk.total_bytes - used_bytes.get((broker_id, path), 0),
                    disk.offline,
                    disk.cordoned,
                    tuple(hosted[path]) if not disk.offline else (),
                )
                for path, disk in sorted(broker.disks.items())
            ),
        )

    def list_offsets(
        self, leaders: Mapping[Partition, int], spec: OffsetSpec
    ) -> dict[Partition, int | RtolapError]:
        self._reach("list_offsets")
        return {partition: self._offset(partition, broker, spec) for partition, broker in leaders.items()}

    def _offset(self, partition: Partition, broker: int, spec: OffsetSpec) -> int | RtolapError:
        known = self._cluster.partitions.get(partition)
        if not self._alive(broker):
            return Unavailable(f"broker {broker} does not answer")
        if known is None:
            return NotFound(f"cannot list offsets of {partition}: it is not there")
        if known.leader != broker:
            return Unavailable(f"broker {broker} does not lead {partition} any more")
        return known.offsets[spec]

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> Outcomes:
        self._reach("reassign")
        outcomes: Outcomes = {}
        with self._cluster.lock:
            for partition, target in targets.items():
                cluster = self._cluster
                refused = cluster.cancel(partition) if target is None else cluster.begin(partition, target)
                if refused is not None:
                    outcomes[partition] = refused
        return outcomes

    def running_reassignments(
        self, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, RunningReassignment]:
        self._reach("running_reassignments")
        return {
            partition: RunningReassignment(
                tuple(known.replicas),
                tuple(sorted(known.adding)),
                tuple(broker for broker in known.replicas if broker not in known.target),
            )
            for partition, known in sorted(self._cluster.partitions.items())
            if known.target is not None and (partitions is None or partition in partitions)
        }

    def move_log_dirs(self, paths: Mapping[Replica, str]) -> dict[Replica, RtolapError]:
        self._reach("move_log_dirs")
        refused: dict[Replica, RtolapError] = {}
        with self._cluster.lock:
            for replica, path in paths.items():
                broker = self._cluster.brokers.get(replica.broker)
                held = self._cluster.replicas.get(replica)
                if broker is None or not broker.alive:
                    refused[replica] = Unavailable(f"broker {replica.broker} does not answer")
                elif path not in broker.disks or broker.disks[path].offline or held is None:
                    refused[replica] = NotFound(f"cannot move {replica.partition} to {path}")
                elif path == held.path:
                    held.future_path, held.future_bytes = None, 0
                elif path != held.future_path:
                    held.future_path, held.future_bytes = path, 0
        return refused

    def configs(
        self, resources: Collection[ConfigResource], names: Collection[str], *, inherited: bool = False
    ) -> dict[ConfigResource, dict[str, str]]:
        self._reach("configs")
        topics = self._cluster.topics()
        return {
            resource: {
                name: value
                for name, value in {
                    **(self._cluster.inherited if inherited else {}),
                    **self._cluster.configs.get(resource, {}),
                }.items()
                if name in names
            }
            for resource in resources
            if resource.kind is ConfigKind.BROKER or resource.name in topics
        }

    def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> dict[ConfigResource, RtolapError]:
        self._reach("alter_configs")
        refused: dict[ConfigResource, RtolapError] = {}
        topics = self._cluster.topics()
        for resource, values in changes.items():
            if resource.kind is ConfigKind.TOPIC and resource.name not in topics:
                refused[resource] = NotFound(f"cannot alter {resource}: it is not there")
                continue
            if resource.kind is ConfigKind.BROKER and resource.name and not self._alive(int(resource.name)):
                refused[resource] = Unavailable(f"{resource} does not answer")
                continue
            kept = self._cluster.configs.setdefault(resource, {})
            for name, value in values.items():
                if value is None:
                    kept.pop(name, None)
                else:
                    kept[name] = value
            if CORDONED_LOG_DIRS in values:
                self._cordon(int(resource.name), values[CORDONED_LOG_DIRS])
        return refused

    def _cordon(self, broker_id: int, paths: str | None) -> None:
        for path, disk in self._cluster.brokers[broker_id].disks.items():
            disk.cordoned = paths == "*" or path in (paths or "").split(",")

    def elect_preferred_leaders(self, partitions: Collection[Partition]) -> Outcomes:
        self._reach("elect_preferred_leaders")
        outcomes: Outcomes = {}
        for partition in partitions:
            known = self._cluster.partitions.get(partition)
            if known is None:
                outcomes[partition] = NotFound(f"cannot elect a leader of {partition}")
            elif known.replicas[0] in known.in_sync and self._alive(known.replicas[0]):
                known.leader = known.replicas[0]
            else:
                outcomes[partition] = Unavailable(f"the preferred leader of {partition} is not in sync")
        return outcomes

    def client_quotas(self) -> tuple[ClientQuota, ...]:
        self._reach("client_quotas")
        kept = sorted(
            self._cluster.quotas.items(), key=lambda item: [(kind, name or "") for kind, name in item[0]]
        )
        return tuple(ClientQuota(entity, dict(values)) for entity, values in kept if values)

    def alter_client_quotas(
        self, changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]
    ) -> None:
        self._reach("alter_client_quotas")
        for entity, values in changes.items():
            kept = self._cluster.quotas.setdefault(tuple(sorted(entity)), {})
            for name, value in values.items():
                if value is None:
                    kept.pop(name, None)
                else:
                    kept[name] = value

    def unregister_broker(self, broker: int) -> None:
        self._reach("unregister_broker")
        self._cluster.forget_broker(broker)

    def missing_rights(
        self, on_cluster: Collection[Right], on_topics: Collection[Right] = (), topics: Collection[str] = ()
    ) -> tuple[str, ...]:
        self._reach("missing_rights")
        wanted = [f"{right} on the cluster" for right in on_cluster]
        wanted += [f"{right} on topic {topic}" for topic in sorted(topics) for right in on_topics]
        there = self._cluster.topics()
        absent = {
            f"{right} on topic {topic}" for topic in topics if topic not in there for right in on_topics
        }
        return tuple(each for each in wanted if each in self._cluster.missing_rights | absent)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _alive(self, broker_id: int) -> bool:
        broker = self._cluster.brokers.get(broker_id)
        return broker is not None and broker.alive

    def _reach(self, call: str) -> None:
        if call in self._cluster.forbidden:
            raise Forbidden(f"User:memory may not {call}", expected="the right for it")
        if not self._cluster.answers or not any(b.alive for b in self._cluster.brokers.values()):
            raise Unavailable("no broker answers", action="retry")
