"""Sensors of a Kafka cluster: nothing moves, a plan has ended, replicas are in sync, a broker's state.

A look costs a few requests, and moves take hours: after the first one they wait in the triggerer. `poll_s`,
the seconds between two looks, may be a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.fleet_looks import LookResult, look
from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.outlets.plans import FINISHED_PLANS, announce_plan
from rtolap.airflow.sensors.base import DeferredSensor
from rtolap.airflow.triggers.fleet import FleetTrigger
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.fleet.operations.cluster import OpenedFleet

POLL_S = 60.0
TIMEOUT = timedelta(days=30)  # replicas of large brokers move for days


class FleetSensor(DeferredSensor["OpenedFleet"]):
    """Base of the sensors that wait for the state of a Kafka cluster, by the look called `look_name`."""

    template_fields: Sequence[str] = ("cluster", "poll_s")
    look_name: ClassVar[str]

    def __init__(
        self,
        *,
        cluster: str = DEFAULT_KAFKA_CLUSTER,
        kafka_conn_id: str | None = None,
        poll_s: float | str = POLL_S,
        timeout: float = TIMEOUT.total_seconds(),
        **kwargs: Any,
    ) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self.cluster = cluster
        self.kafka_conn_id = kafka_conn_id
        self.poll_s = poll_s

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the look, rendered."""
        return {}

    def client(self, hook: RtolapHook) -> AbstractContextManager[OpenedFleet]:
        return open_fleet(self.cluster, self.kafka_conn_id).opened()

    def look(self, client: OpenedFleet) -> LookResult:
        return look(client, self.look_name, self.arguments())

    def poll(self, client: OpenedFleet) -> Any:
        seen = self.look(client)
        self.log.info(seen.text)
        if seen.failed is not None:
            raise AirflowFailException(seen.failed)
        return seen.result if seen.done else None

    def found(self, client: OpenedFleet) -> str:
        return self.look(client).text

    def trigger(self, client: OpenedFleet) -> FleetTrigger:
        return FleetTrigger(
            look_name=self.look_name,
            arguments=self.arguments(),
            cluster=self.cluster,
            kafka_conn_id=self.kafka_conn_id,
            poll_s=float(self.poll_s),
        )

    def fired(self, context: Context, event: dict[str, Any]) -> Any:
        if "failed" in event:
            raise AirflowFailException(event["failed"])
        return event["result"]


class NoMovesRunningSensor(FleetSensor):
    """Succeeds when no plan is carried out and nobody is reassigning a partition."""

    look_name = "nothing_moves"


class NoUnderReplicatedPartitionSensor(FleetSensor):
    """Succeeds when every replica of every partition is in sync."""

    look_name = "in_sync"


class PlanEndedSensor(FleetSensor):
    """Succeeds when a plan is done, and fails when some of its moves are not. The result has the moves by
    state; it is empty where `plan_id` is None, since nothing had to move.

    Has the outlet `FINISHED_PLANS`: a plan that is done is an event of the asset of the cluster."""

    template_fields: Sequence[str] = (*FleetSensor.template_fields, "plan_id")
    look_name = "plan_ended"

    def __init__(self, *, plan_id: Any, **kwargs: Any) -> None:
        kwargs.setdefault("outlets", [FINISHED_PLANS])
        super().__init__(**kwargs)
        self.plan_id = plan_id

    def arguments(self) -> dict[str, Any]:
        return {"plan_id": self.plan_id}

    def announce(self, context: Context, result: dict[str, int]) -> None:
        if self.plan_id is None:
            return
        with self.client(RtolapHook(self.rtolap_conn_id)) as fleet:
            announce_plan(context, self.cluster, fleet.finished(self.plan_id))


class BrokerSensor(FleetSensor):
    """Base of the sensors that wait for the state of one broker."""

    template_fields: Sequence[str] = (*FleetSensor.template_fields, "broker")

    def __init__(self, *, broker: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.broker = broker

    def arguments(self) -> dict[str, Any]:
        return {"broker": int(self.broker)}


class BrokerMayStopSensor(BrokerSensor):
    """Succeeds when every partition that can be written can be written without the broker. The result has its
    host, state and replicas, and `text` for the person who approves it."""

    look_name = "may_stop"


class BrokerMayRetireSensor(BrokerSensor):
    """Succeeds when the broker holds no replica, and its life lets it retire. Result: its state."""

    look_name = "may_retire"


class BrokerStateSensor(BrokerSensor):
    """Succeeds when the broker is in `state`, and all actions that lead there are done. The result is the
    state."""

    look_name = "broker_state"

    def __init__(self, *, state: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.state = state

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "state": self.state}
