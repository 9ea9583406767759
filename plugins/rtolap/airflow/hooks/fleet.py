"""FleetHook opens the care of one Kafka cluster (`fleet.operations`) for operators and sensors.

Not to be imported while DAGs are parsed: it loads numpy and the clients of Kafka and ZooKeeper. The cluster
is reached by its connection, as by `hooks.kafka`; ZooKeeper, the token, the object store and the registry are
this host's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rtolap.airflow.hooks.kafka import KafkaClusterHook
from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.operations.cluster import OpenedFleet
from rtolap.fleet.operations.look import FleetLook, look_at_fleet, stored_plan
from rtolap.fleet.operations.rates import rate_reader
from rtolap.fleet.operations.slow_watch import SlowLook, SlowWatch
from rtolap.fleet.planning.plan import Plan
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.clusters import KafkaClusters
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

    def look(self) -> FleetLook:
        """Look at the cluster once. See `look_at_fleet`."""
        with self.opened() as fleet:
            return look_at_fleet(fleet)


def known_clusters() -> tuple[str, ...]:
    """Return the names of the Kafka clusters that this host's settings declare."""
    return tuple(sorted(KafkaClusters.of_host(Settings()).clusters))


def planned(digest: str) -> Plan:
    """Return the plan of this digest that a DAG has made. See `stored_plan`."""
    return stored_plan(open_store(Settings().object_store), digest)


class SlowBrokers:
    """The watch over the brokers of this host's sources of metrics, begun again when their file changes.

    It is thread-safe. Each process that answers pages has its own, and judges by its own looks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: tuple[Path, int] | None = None
        self._watch: SlowWatch | None = None

    def look(self) -> SlowLook | None:
        """Look at the brokers; None where this host declares no sources. Raises DefinitionError for a file
        that cannot be used."""
        path = Settings().fleet_sources
        if path is None:
            return None
        try:
            of = (path, path.stat().st_mtime_ns)
        except OSError:
            of = (path, 0)  # what is wrong with the file, the watch says
        with self._lock:
            former = None if self._watched == of else self._watch
            if self._watch is None or former is not None:
                self._watch, self._watched = SlowWatch.of_file(path, SystemClock()), of
            watch = self._watch
        if former is not None:
            former.close()
        return watch.look()
