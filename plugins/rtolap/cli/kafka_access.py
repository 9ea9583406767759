"""Access of the command line to Kafka: clusters by name, as this host is set up."""

from __future__ import annotations

from rtolap.base.settings import Settings
from rtolap.kafka.clusters import KafkaCluster, KafkaClusters
from rtolap.kafka.connections import KafkaConnections


def kafka_cluster(settings: Settings, name: str) -> KafkaCluster:
    return KafkaClusters.of_host(settings).get(name)


def kafka_connections(settings: Settings, client_id: str) -> KafkaConnections:
    return KafkaConnections(KafkaClusters.of_host(settings), client_id)
