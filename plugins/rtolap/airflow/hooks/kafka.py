"""KafkaClusterHook is the Kafka provider's hook, and gives the settings for this product's own clients.

Not to be imported while DAGs are parsed: the provider's hook loads a Kafka client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

from rtolap.airflow.hooks.awaited import AwaitedConnections
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import (
    LOADS_CODE,
    OWNED,
    KafkaCluster,
    KafkaClusters,
    cluster_of,
    plain_value,
)
from rtolap.kafka.dead_letters import NewDeadLetters, OlderDeadLetters, new_dead_letters, older_dead_letters
from rtolap.kafka.producer import KafkaAdmin
from rtolap.kafka.rights import Need, Operation, check_rights
from rtolap.model.offsets import Offsets
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

CLUSTER_KEY = "cluster"


def connection_of(cluster: str) -> str:
    """Return the name of a cluster's connection: `kafka_default` for the cluster `default`, `kafka_NAME` for
    any other."""
    return f"kafka_{cluster}"


class KafkaClusterHook(AwaitedConnections, KafkaBaseHook):
    """A hook for one Kafka cluster, reached by its connection, `kafka_default` for the cluster `default` and
    `kafka_NAME` for others; where there is none, by the settings of this host (`RTOLAP_KAFKA`,
    `RTOLAP_KAFKA_CLUSTERS`).

    A connection's extra holds client settings, or the one key `cluster`: the name of a cluster in this host's
    file, whose secrets then stay on the host. A connection that names a cluster may say nothing else:
    otherwise a user who edits connections could have the host's passwords sent elsewhere. Settings that only
    consumers and producers take (`group.id`, …) are for other operators that share the connection, and are
    left out here.
    """

    def __init__(self, cluster: str = DEFAULT_KAFKA_CLUSTER, kafka_config_id: str | None = None) -> None:
        super().__init__(kafka_config_id=kafka_config_id or connection_of(cluster))
        self._name = cluster
        self._named = kafka_config_id is not None

    async def load(self) -> None:
        """Read the connection without blocking; triggers call it before a thread of theirs asks Kafka."""
        await self.read(self.kafka_config_id)

    @property
    def cluster_name(self) -> str:
        """The name by which this host knows the cluster: the connection's, where it names one."""
        return str((self._extra or {}).get(CLUSTER_KEY, self._name))

    @cached_property
    def _extra(self) -> dict[str, Any] | None:
        connection = self.optional_connection(self.kafka_config_id, required=self._named)
        return None if connection is None else connection.extra_dejson

    @cached_property
    def cluster(self) -> KafkaCluster:
        """Raises DefinitionError for a connection that does not say how to reach a cluster."""
        extra = self._extra
        if extra is None:
            return _of_host(self._name)
        if CLUSTER_KEY in extra:
            if set(extra) != {CLUSTER_KEY}:
                raise DefinitionError(
                    f"connection {self.kafka_config_id} names a Kafka cluster of this host and says more",
                    expected=f"{CLUSTER_KEY} alone, or settings without it",
                    found=", ".join(sorted(extra)),
                )
            return _of_host(str(extra[CLUSTER_KEY]))
        try:
            cluster_settings: KafkaCluster = self.get_conn
        except ValueError as error:
            raise DefinitionError(
                f"connection {self.kafka_config_id} is incomplete", found=str(error)
            ) from error
        return cluster_settings

    def _get_client(self, config: Mapping[str, Any]) -> KafkaCluster:
        """Return the client that the provider requests, for the configuration it has composed."""
        place = f"connection {self.kafka_config_id}"
        client_settings = {
            name: value for name, value in config.items() if OWNED.get(name, LOADS_CODE) == LOADS_CODE
        }
        for name in client_settings.keys() & {
            name for name, value in client_settings.items() if callable(value)
        }:
            raise DefinitionError(f"{place}: {name} cannot be set", expected=LOADS_CODE)
        return cluster_of(
            self.kafka_config_id,
            {name: plain_value(place, name, value) for name, value in client_settings.items()},
        )

    def check(self, topics: Iterable[str], operation: Operation) -> None:
        """Raise NotFound, Forbidden or Unauthorized where `operation` on a topic is not allowed."""
        check_rights(self.cluster, (Need(topic, operation) for topic in topics))

    def new_dead_letters(self, topic: str, since: Mapping[int, int], letters_max: int) -> NewDeadLetters:
        """See `kafka.dead_letters.new_dead_letters`."""
        return new_dead_letters(self.cluster, topic, since, letters_max)

    def older_dead_letters(self, topic: str, before: Mapping[int, int], records_max: int) -> OlderDeadLetters:
        """See `kafka.dead_letters.older_dead_letters`."""
        return older_dead_letters(self.cluster, topic, before, records_max)

    def log_ends(self, topic: str) -> Offsets:
        admin = KafkaAdmin(self.cluster)
        try:
            return admin.offsets(topic, "latest")
        finally:
            admin.close()


def _of_host(name: str) -> KafkaCluster:
    return KafkaClusters.of_host(Settings()).get(name)
