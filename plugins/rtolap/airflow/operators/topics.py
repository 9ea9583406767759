"""CheckTopicsOperator checks that topics exist and may be read, before anything that reads them starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.base.errors import RtolapError
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeStatus


class Topic(NamedTuple):
    cluster: str
    name: str


class CheckTopicsOperator(BaseOperator):
    """Succeeds when the topics of `cubes`, by default of all that are enabled, are on their Kafka clusters,
    as the connections say (`kafka_default`; `kafka_NAME` for the cluster NAME; `kafka_conn_id` for all).

    With `rights`, Read also has to be allowed; use it for connections whose user is the receivers' own. It
    names everything that is missing, all at once. Returns {cluster: topics}.
    """

    template_fields: Sequence[str] = ("cubes",)

    def __init__(
        self,
        *,
        cubes: Sequence[str] | None = None,
        rights: bool = False,
        kafka_conn_id: str | None = None,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cubes = cubes
        self.rights = rights
        self.kafka_conn_id = kafka_conn_id
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> dict[str, list[str]]:
        with RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            wanted = sorted({topic_of(coordinator, cube) for cube in self._cubes(coordinator)})
        topics_of: dict[str, list[str]] = {}
        for cluster, topic in wanted:
            topics_of.setdefault(cluster, []).append(topic)
        missing = []
        for cluster, topics in topics_of.items():
            hook = open_kafka(cluster, self.kafka_conn_id)
            try:
                hook.check(topics, "Read" if self.rights else "Describe")
            except RtolapError as error:
                missing.append(f"{hook.kafka_config_id}: {error}")
            else:
                self.log.info("%s has %s", hook.kafka_config_id, ", ".join(topics))
        if missing:
            raise AirflowException("\n".join(missing))
        return topics_of

    def _cubes(self, coordinator: CoordinatorClient) -> list[CubeStatus]:
        if self.cubes is not None:
            return [coordinator.cube(name) for name in self.cubes]
        return [cube for cube in coordinator.cubes() if cube.enabled]


def topic_of(coordinator: CoordinatorClient, cube: CubeStatus) -> Topic:
    table: Mapping[str, Any] = coordinator.table(cube.definition["table"])
    return Topic(table.get("kafka_cluster", DEFAULT_KAFKA_CLUSTER), table["topic"])
