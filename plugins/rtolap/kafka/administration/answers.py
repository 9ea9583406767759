"""Kafka's answers, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rtolap.kafka.administration.values import (
    BrokerDescription,
    ClientQuota,
    ConfigKind,
    ConfigResource,
    HostedReplica,
    LogDirDescription,
    Partition,
    PartitionDescription,
    RunningReassignment,
    TopicDescription,
)

# of the sources of a value: those that were set on the resource itself, or for all brokers
_DYNAMIC_TOPIC, _DYNAMIC_BROKER, _DYNAMIC_ALL_BROKERS = 1, 2, 3


def brokers(answer: Any) -> tuple[BrokerDescription, ...]:
    """Return them by id; those that are fenced too."""
    found = (
        BrokerDescription(
            broker.broker_id,
            broker.host,
            broker.port,
            broker.rack,
            bool(getattr(broker, "is_fenced", False)),
        )
        for broker in answer.brokers
    )
    return tuple(sorted(found, key=lambda known: known.broker_id))


def topic(answer: Any) -> TopicDescription:
    partitions = (
        PartitionDescription(
            partition.partition_index,
            partition.leader_id,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in answer.partitions
    )
    return TopicDescription(
        answer.name, bool(answer.is_internal), tuple(sorted(partitions, key=lambda known: known.number))
    )


def log_dirs(answer: Any) -> tuple[LogDirDescription, ...]:
    """Return them by path."""
    return tuple(sorted((_log_dir(result) for result in answer.results), key=lambda log_dir: log_dir.path))


def _log_dir(result: Any) -> LogDirDescription:
    replicas = tuple(
        HostedReplica(
            Partition(answer.name, partition.partition_index),
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for answer in result.topics
        for partition in answer.partitions
    )
    return LogDirDescription(
        result.log_dir,
        _known_bytes(getattr(result, "total_bytes", None)),
        _known_bytes(getattr(result, "usable_bytes", None)),
        offline=result.error_code != 0,
        cordoned=bool(getattr(result, "is_cordoned", False)),
        replicas=replicas,
    )


def _known_bytes(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def running_reassignments(answer: Any) -> dict[Partition, RunningReassignment]:
    return {
        Partition(name, partition.partition_index): RunningReassignment(
            tuple(partition.replicas),
            tuple(partition.adding_replicas),
            tuple(partition.removing_replicas),
        )
        for name, partition in each_partition(answer.topics)
    }


def client_quotas(answer: Any) -> tuple[ClientQuota, ...]:
    """Return them by entity."""
    quotas = (
        ClientQuota(
            tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    )
    return tuple(sorted(quotas, key=lambda quota: [(kind, name or "") for kind, name in quota.entity]))


def own_source(resource: ConfigResource) -> int:
    """Return the source that a value has which was set on the resource itself."""
    if resource.kind is ConfigKind.TOPIC:
        return _DYNAMIC_TOPIC
    return _DYNAMIC_BROKER if resource.name else _DYNAMIC_ALL_BROKERS


def each_partition(topics: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each partition with its topic's name."""
    return ((answer.name, partition) for answer in topics for partition in answer.partitions)
