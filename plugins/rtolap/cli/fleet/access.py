"""The Kafka cluster that a command of the fleet is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

ClusterOption = Annotated[
    str, typer.Option("--cluster", help="Kafka cluster, by the name that this host knows it by.")
]


@contextmanager
def open_administration(cluster: str = DEFAULT_KAFKA_CLUSTER) -> Iterator[FleetAdministration]:
    administration = KafkaAdministration(kafka_cluster(Settings(), cluster))
    try:
        yield administration
    finally:
        administration.close()
