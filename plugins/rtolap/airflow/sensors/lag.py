"""LagSensor waits until receivers or a loader have read their topic, up to so many records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from airflow.sdk import Context

from rtolap.airflow.declared import find_loader
from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.topics import topic_of
from rtolap.airflow.sensors.base import DeferredSensor
from rtolap.airflow.triggers.lag import LagTrigger, lag, outcome, reached, words
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.protocols.coordinator.client import CoordinatorClient


class Reader(NamedTuple):
    """A reader of a topic of a cluster, and how far it is; `port` of a loader's process."""

    cluster: str
    topic: str
    port: int
    positions: Callable[[], Mapping[int, int]]


class LagSensor(DeferredSensor[Reader]):
    """Succeeds when no partition lags by more than `lag_max` records: of a `cube`'s topic behind its
    receivers, or of a `loader`'s topic behind the rows in the table.

    The log's ends are requested from Kafka, by the topic's connection: `kafka_default`, `kafka_NAME` for a
    topic of the cluster NAME, or `kafka_conn_id`. Result: {"lag": {partition: records}}.
    """

    template_fields: Sequence[str] = ("cube", "loader", "lag_max")
    passing = (NotFound,)  # until the DAG of loaders has started it

    def __init__(
        self,
        *,
        cube: str | None = None,
        loader: str | None = None,
        lag_max: int | str = 0,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cube = cube
        self.loader = loader
        self.lag_max = lag_max
        self.kafka_conn_id = kafka_conn_id

    def client(self, hook: RtolapHook) -> AbstractContextManager[Reader]:
        if (self.cube is None) == (self.loader is None):
            raise DefinitionError(
                "a lag is of one cube or one loader",
                expected="cube or loader",
                found=f"cube={self.cube!r}, loader={self.loader!r}",
            )
        return _receivers(hook, self.cube) if self.cube is not None else _loader(hook, str(self.loader))

    def poll(self, client: Reader) -> dict[str, Any] | None:
        try:
            partition_lags = self._lag(client)
        except Unavailable as error:
            self.log.warning("%s is waited for: %s", self.cube or self.loader, error)
            return None
        return outcome(partition_lags) if reached(partition_lags, int(self.lag_max)) else None

    def found(self, client: Reader) -> str:
        try:
            return f"{self.cube or self.loader}: {words(self._lag(client), int(self.lag_max))}"
        except Unavailable as error:
            return str(error)

    def trigger(self, client: Reader) -> LagTrigger:
        return LagTrigger(
            topic=client.topic,
            cube=self.cube,
            loader=self.loader,
            port=client.port,
            lag_max=int(self.lag_max),
            kafka_cluster=client.cluster,
            kafka_conn_id=self.kafka_conn_id,
            poll_s=float(self.poke_interval),
            rtolap_conn_id=self.rtolap_conn_id,
        )

    def fired(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        return event

    def _lag(self, client: Reader) -> dict[int, int | None]:
        ends = open_kafka(client.cluster, self.kafka_conn_id).log_ends(client.topic)
        return lag(ends, client.positions())


@contextmanager
def _receivers(hook: RtolapHook, cube: str) -> Iterator[Reader]:
    with hook.coordinator() as coordinator:
        cluster, topic = topic_of(coordinator, coordinator.cube(cube))
        yield Reader(cluster, topic, 0, lambda: _positions(coordinator, cube))


def _positions(coordinator: CoordinatorClient, cube: str) -> dict[int, int]:
    partitions = coordinator.watermark(cube).partitions
    return {partition: report.position for partition, report in partitions.items()}


@contextmanager
def _loader(hook: RtolapHook, name: str) -> Iterator[Reader]:
    with hook.agent() as agent:
        port = find_loader(agent, name).port
    with hook.loader(port) as client:
        status = client.status()
        yield Reader(status.kafka_cluster, status.topic, port, lambda: client.status().loaded)
