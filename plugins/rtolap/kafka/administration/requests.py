"""Kafka's requests, made of plain values.

kafka-python has no message for UnregisterBroker (API key 64), though it knows the key, nor for groups of
Kafka 4's newer protocols: ConsumerGroupDescribe (69), ShareGroupDescribe (77), DescribeShareGroupOffsets
(90). Message classes are made of Kafka's own schemas; those of these stand in `schemas`. An answer is read by
the class that was registered under the request's key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import new_class
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from rtolap.kafka.administration.values import ConfigKind, ConfigResource, OffsetSpec, Partition

_SCHEMAS = f"{__package__}.schemas"

_TIMEOUT_MS = 15_000  # for a controller to answer
_CODES = {ConfigKind.TOPIC: 2, ConfigKind.BROKER: 4}
_KINDS = {code: kind for kind, code in _CODES.items()}
_SET, _DELETE = 0, 1
_PREFERRED = 0
_OFFSETS_VERSION_MIN = 1
_RESPONSES: list[type] = []  # kafka-python does not keep them


def _request(name: str) -> Any:
    """Return a kind of request that kafka-python does not have. By its response's, it reads answers."""
    halves = (f"{name}Request", f"{name}Response")
    request, response = (new_class(half, (ApiMessage,), {"load_json": _SCHEMAS}) for half in halves)
    _RESPONSES.append(response)
    return request


UnregisterBrokerRequest = _request("UnregisterBroker")
ConsumerGroupDescribeRequest = _request("ConsumerGroupDescribe")
ShareGroupDescribeRequest = _request("ShareGroupDescribe")
DescribeShareGroupOffsetsRequest = _request("DescribeShareGroupOffsets")


def quorum() -> Any:
    topic = DescribeQuorumRequest.TopicData
    partition = topic.PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[topic(topic_name="__cluster_metadata", partitions=[partition])])


def metadata(topics: Collection[str] | None, *, rights: bool = False) -> Any:
    named = MetadataRequest.MetadataRequestTopic
    wanted = None if topics is None else [named(name=topic) for topic in sorted(topics)]
    return MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=rights
    )


def log_dirs(partitions: Collection[Partition] | None) -> Any:
    if partitions is None:
        return DescribeLogDirsRequest(topics=None)
    named = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[named(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions)]
    )


def offsets(partitions: Iterable[Partition], spec: OffsetSpec) -> Any:
    """Return the request for one broker. A broker that does not know the spec would take it for a time, hence
    the least version."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=number, timestamp=int(spec))
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(partitions)
        ],
        min_version=max(_OFFSETS_VERSION_MIN, ListOffsetsRequest.min_version_for_timestamp(spec)),
    )


def producers(partitions: Iterable[Partition]) -> Any:
    """Return a request to one broker."""
    kind = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[kind(name=topic, partition_indexes=numbers) for topic, numbers in _by_topic(partitions)]
    )


def reassignments(targets: Mapping[Partition, Sequence[int] | None]) -> Any:
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic

    def partition(topic: str, number: int) -> Any:
        target = targets[Partition(topic, number)]
        return kind.ReassignablePartition(
            partition_index=number, replicas=None if target is None else list(target)
        )

    return AlterPartitionReassignmentsRequest(
        timeout_ms=_TIMEOUT_MS,
        topics=[
            kind(name=topic, partitions=[partition(topic, number) for number in numbers])
            for topic, numbers in _by_topic(targets)
        ],
    )


def running_reassignments(partitions: Collection[Partition] | None) -> Any:
    kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    wanted = None
    if partitions is not None:
        wanted = [kind(name=topic, partition_indexes=numbers) for topic, numbers in _by_topic(partitions)]
    return ListPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=wanted)


def log_dir_moves(moved: Mapping[str, Iterable[Partition]]) -> Any:
    """Return requests to one broker. `moved`: partitions by the directory they go to."""
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    return AlterReplicaLogDirsRequest(
        dirs=[
            kind(
                path=path,
                topics=[
                    kind.AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                    for topic, numbers in _by_topic(partitions)
                ],
            )
            for path, partitions in moved.items()
        ]
    )


def configs(resources: Sequence[ConfigResource], names: Collection[str]) -> Any:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            kind(
                resource_type=_CODES[resource.kind],
                resource_name=resource.name,
                configuration_keys=list(names),
            )
            for resource in resources
        ]
    )


def config_changes(changes: Mapping[ConfigResource, Mapping[str, str | None]]) -> Any:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        resources=[
            kind(
                resource_type=_CODES[resource.kind],
                resource_name=resource.name,
                configs=[
                    kind.AlterableConfig(
                        name=name, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for name, value in values.items()
                ],
            )
            for resource, values in changes.items()
        ],
        validate_only=False,
    )


def resource_of(result: Any) -> ConfigResource:
    """Return the resource that an answer to either is about."""
    return ConfigResource(_KINDS[result.resource_type], result.resource_name)


def elections(partitions: Collection[Partition]) -> Any:
    kind = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=[kind(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions)],
        timeout_ms=_TIMEOUT_MS,
    )


def quota_changes(
    changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]],
) -> Any:
    kind = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            kind(
                entity=[kind.EntityData(entity_type=of, entity_name=name) for of, name in entity],
                ops=[
                    kind.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in changes.items()
        ],
        validate_only=False,
    )


def _by_topic(partitions: Iterable[Partition]) -> Iterable[tuple[str, list[int]]]:
    numbers: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        numbers.setdefault(partition.topic, []).append(partition.number)
    return numbers.items()
