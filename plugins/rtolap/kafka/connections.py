"""The shared connections of one service to Kafka: a producer and an administrator for each cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import Lock

from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.clusters import KafkaClusters
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.kafka.rights import Need, check_rights
from rtolap.kafka.statistics import ClientStatistics

log = logging.getLogger(__name__)


class KafkaConnections:
    """The connections to clusters. They are thread-safe. Each one is opened when it is first used, and
    `close` closes them all.

    `statistics`: of the service's consumers, which are opened elsewhere and report to it.
    """

    def __init__(self, clusters: KafkaClusters, client_id: str) -> None:
        self.clusters = clusters
        self.statistics = ClientStatistics()
        self._client_id = client_id
        self._producers: dict[str, KafkaProducer] = {}
        self._admins: dict[str, KafkaAdmin] = {}
        self._lock = Lock()

    def producer(self, cluster: str) -> KafkaProducer:
        """Return a producer. This and the other methods raise DefinitionError where this host does not know
        the cluster, or cannot reach it with its settings."""
        with self._lock:
            if cluster not in self._producers:
                self._producers[cluster] = KafkaProducer(
                    self.clusters.get(cluster), client_id=self._client_id
                )
            return self._producers[cluster]

    def admin(self, cluster: str) -> KafkaAdmin:
        with self._lock:
            if cluster not in self._admins:
                self._admins[cluster] = KafkaAdmin(self.clusters.get(cluster))
            return self._admins[cluster]

    def check_rights(self, cluster: str, needs: Iterable[Need]) -> bool:
        """Check the rights. Raises Forbidden, Unauthorized and DefinitionError: a start would then be in
        vain.

        False where no broker answers: services start without Kafka, and wait for it, as they do for a topic
        that is missing.
        """
        try:
            check_rights(self.clusters.get(cluster), needs)
        except NotFound as error:
            log.warning("%s", error)
        except Unavailable as error:
            log.warning("rights cannot be checked: %s", error)
            return False
        return True

    def close(self) -> None:
        with self._lock:
            for producer in self._producers.values():
                producer.close()
            for admin in self._admins.values():
                admin.close()
