"""Sensors of a Kafka cluster: nothing moves, a plan has ended, replicas are in sync, a broker's state.

A look costs a few requests, and moves take hours: between looks the worker's slot is free
(`mode="reschedule"`). `poll_s`, the seconds between two looks, may be a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.fleet_brokers import BrokerView

POLL_S = 60.0
_SHOWN = 5


class _FleetSensor(BaseSensorOperator):
    template_fields: Sequence[str] = ("cluster", "poll_s")

    def __init__(
        self,
        *,
        cluster: str = DEFAULT_KAFKA_CLUSTER,
        kafka_conn_id: str | None = None,
        poll_s: float | str = POLL_S,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **kwargs)
        self.cluster = cluster
        self.kafka_conn_id = kafka_conn_id
        self.poll_s = poll_s

    def execute(self, context: Context) -> Any:
        self.poke_interval = float(self.poll_s)
        return super().execute(context)

    def _left(self, what: str, left: Sequence[str]) -> bool:
        if left:
            self.log.info("%d %s: %s", len(left), what, ", ".join(left[:_SHOWN]))
        return not left


class NoMovesRunningSensor(_FleetSensor):
    """Succeeds when no plan is carried out and no partition is being reassigned, by whomever."""

    def poke(self, context: Context) -> bool:
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            return self._left("moves are running", fleet.running())


class NoUnderReplicatedPartitionSensor(_FleetSensor):
    """Succeeds when every replica of every partition is in sync."""

    def poke(self, context: Context) -> bool:
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            return self._left("partitions are under-replicated", fleet.under_replicated())


class PlanEndedSensor(_FleetSensor):
    """Succeeds when a plan is done, and fails when some of its moves are not. Result: moves by state; none of
    them where `plan_id` is None, for nothing had to be moved."""

    template_fields: Sequence[str] = (*_FleetSensor.template_fields, "plan_id")

    def __init__(self, *, plan_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_id = plan_id

    def poke(self, context: Context) -> PokeReturnValue:
        if self.plan_id is None:
            return PokeReturnValue(True, {})
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            counts = fleet.ended(self.plan_id)
        if counts is not None and set(counts) - {"done"}:
            raise AirflowFailException(f"plan {self.plan_id} has ended with {counts}")
        return PokeReturnValue(counts is not None, counts)


class _BrokerSensor(_FleetSensor):
    template_fields: Sequence[str] = (*_FleetSensor.template_fields, "broker")

    def __init__(self, *, broker: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.broker = broker

    def view(self) -> BrokerView:
        """Return the broker as `hooks.fleet_brokers` shows it, after what happened by itself is noted."""
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            view = fleet.brokers.view(int(self.broker))
        self.log.info("broker %s: %s, %d replicas", view.broker, view.state, view.replicas)
        if view.problem:
            self.log.warning("an operation on it is not done: %s", view.problem)
        return view


class BrokerMayStopSensor(_BrokerSensor):
    """Succeeds when every partition that can be written can be written without the broker. Result: its host,
    state and replicas, and `text` for who approves it."""

    def poke(self, context: Context) -> PokeReturnValue:
        view = self.view()
        may = self._left("partitions could not be written without it", view.stopped)
        text = "\n".join(
            [
                f"- broker {view.broker} on {view.host or 'an unknown host'} is {view.state}",
                f"- {view.replicas} replicas are on it, which nobody can read there while it is stopped",
                "- every partition that can be written now can be written without it",
            ]
        )
        described = {"host": view.host, "state": str(view.state), "replicas": view.replicas, "text": text}
        return PokeReturnValue(may, described)


class BrokerMayRetireSensor(_BrokerSensor):
    """Succeeds when the broker holds no replica, and its life lets it retire. Result: its state."""

    def poke(self, context: Context) -> PokeReturnValue:
        view = self.view()
        return PokeReturnValue(view.may_retire, str(view.state))


class BrokerStateSensor(_BrokerSensor):
    """Succeeds when the broker's life is in `state`, and all that led there is done. Result: the state."""

    def __init__(self, *, state: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.state = state

    def poke(self, context: Context) -> PokeReturnValue:
        view = self.view()
        return PokeReturnValue(view.state == self.state and not view.problem, str(view.state))
