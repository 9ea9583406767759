"""Access of the command line to Kafka: clusters by name, as this host is set up."""

from __future__ import annotations

from rtolap.base.settings import Settings
from rtolap.kafka.catch_up import catch_up_consumer
from rtolap.kafka.clusters import KafkaCluster, KafkaClusters
from rtolap.kafka.connections import KafkaConnections
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import StreamConsumer
from rtolap.model.loader import Loader
from rtolap.model.table import Table


def kafka_cluster(settings: Settings, name: str) -> KafkaCluster:
    return KafkaClusters.of_host(settings).get(name)


def kafka_connections(settings: Settings, client_id: str) -> KafkaConnections:
    return KafkaConnections(KafkaClusters.of_host(settings), client_id)


def open_consumer(
    connections: KafkaConnections, reads: Table | Loader, client_id: str, settings: Settings
) -> StreamConsumer:
    """Return a consumer of the topic of a table or loader, with all that the events of it are made of."""

    def open_one() -> KafkaConsumer:
        return KafkaConsumer(
            connections.clusters.get(reads.kafka_cluster),
            reads.topic,
            client_id=client_id,
            with_create_ms=True,
            with_statements=reads.watermark_records == "header",
            sources=reads.text_sources,
            statistics=connections.statistics,
        )

    return catch_up_consumer(open_one, settings.catch_up_behind_records)
