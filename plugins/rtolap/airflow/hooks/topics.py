"""TopicAccess: Kafka topics for operators, sensors and triggers, which are imported while DAGs are parsed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rtolap.model.offsets import Offsets
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.kafka import KafkaClusterHook
    from rtolap.kafka.rights import Operation


class TopicAccess:
    """Topics of one cluster. Its hook, whose library is a Kafka client, is loaded when it is first used."""

    def __init__(self, cluster: str = DEFAULT_KAFKA_CLUSTER, kafka_conn_id: str | None = None) -> None:
        self._cluster = cluster
        self._kafka_conn_id = kafka_conn_id

    @property
    def connection(self) -> str:
        return str(self._hook().kafka_config_id)

    def check(self, topics: Iterable[str], operation: Operation) -> None:
        """See `KafkaClusterHook.check`."""
        self._hook().check(topics, operation)

    def log_ends(self, topic: str) -> Offsets:
        """Partition → offset of its log's end."""
        return self._hook().log_ends(topic)

    def _hook(self) -> KafkaClusterHook:
        from rtolap.airflow.hooks.kafka import KafkaClusterHook

        return KafkaClusterHook(self._cluster, self._kafka_conn_id)
