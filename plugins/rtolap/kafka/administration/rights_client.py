"""The rights of a connection's principal, as brokers tell each its own (KIP-430): no right to read ACLs is
needed."""

from __future__ import annotations

from collections.abc import Collection

from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeClusterRequest

from rtolap.kafka.administration import requests
from rtolap.kafka.administration.connection import AdministrationConnection
from rtolap.kafka.administration.values import Right
from rtolap.kafka.clusters import KafkaCluster

_ATTEMPT, _RIGHT = "learn its rights", "Describe on the cluster"
_OPERATIONS = {
    Right.ALTER: ACLOperation.ALTER,
    Right.DESCRIBE: ACLOperation.DESCRIBE,
    Right.ALTER_CONFIGS: ACLOperation.ALTER_CONFIGS,
    Right.DESCRIBE_CONFIGS: ACLOperation.DESCRIBE_CONFIGS,
}


class KafkaRights:
    """The implementation of `interface.FleetAdministration.missing_rights`."""

    def __init__(self, cluster: KafkaCluster, connection: AdministrationConnection) -> None:
        self.cluster = cluster
        self._connection = connection

    def missing_rights(
        self, on_cluster: Collection[Right], on_topics: Collection[Right] = (), topics: Collection[str] = ()
    ) -> tuple[str, ...]:
        answer = self._connection.ask(
            lambda: DescribeClusterRequest(include_cluster_authorized_operations=True), _ATTEMPT, _RIGHT
        )
        allowed = answer.authorized_operations
        missing = [f"{right} on the cluster" for right in _missing(allowed, on_cluster)]
        if topics:
            answer = self._connection.ask(lambda: requests.metadata(topics, rights=True), _ATTEMPT, _RIGHT)
            for topic in sorted(answer.topics, key=lambda known: known.name):
                allowed = set() if topic.error_code else topic.authorized_operations
                missing += [f"{right} on topic {topic.name}" for right in _missing(allowed, on_topics)]
        return tuple(missing)


def _missing(allowed: set[int] | None, wanted: Collection[Right]) -> list[Right]:
    """Return the missing rights. `allowed` is None where the broker does not tell."""
    return [] if allowed is None else [right for right in wanted if _OPERATIONS[right] not in allowed]
