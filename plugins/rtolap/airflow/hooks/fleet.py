"""FleetHook opens the care of one Kafka cluster (`fleet.operations`) for operators and sensors.

Not to be imported while DAGs are parsed: it loads numpy and the clients of Kafka and ZooKeeper. The cluster
is reached by its connection, as by `hooks.kafka`; ZooKeeper, the token, the object store and the registry are
this host's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.airflow.hooks.kafka import KafkaClusterHook
from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.operations.cluster import OpenedFleet
from rtolap.fleet.operations.rates import rate_reader
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.object_store.store import open_store


class FleetHook:
    """The hook that cares for a Kafka cluster. It connects by `kafka_default` for `default`, by `kafka_NAME`
    for any other cluster, or by `kafka_conn_id`."""

    def __init__(self, cluster: str, kafka_conn_id: str | None = None) -> None:
        self._kafka = KafkaClusterHook(cluster, kafka_conn_id)

    async def load(self) -> None:
        """Read the connection without blocking, before `opened` is used in a thread of a trigger."""
        await self._kafka.load()

    @contextmanager
    def opened(self) -> Iterator[OpenedFleet]:
        settings = Settings()
        hook = self._kafka
        registry = HostRegistry(settings.include_dir, hook.cluster_name)
        rates = rate_reader(settings.fleet_sources)
        administration = KafkaAdministration(hook.cluster)
        try:
            store = open_cluster_store(settings)
            try:
                plans = open_store(settings.object_store)
                yield OpenedFleet(
                    administration, store, plans, settings.token(), SystemClock(), registry, rates
                )
            finally:
                store.close()
        finally:
            administration.close()
