"""Sensors of a Kafka cluster: nothing moves, a plan has ended, every replica is in sync.

A look costs one or two requests, and moves take hours: between looks the worker's slot is free
(`mode="reschedule"`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

_SHOWN = 5


class _FleetSensor(BaseSensorOperator):
    template_fields: Sequence[str] = ("cluster",)

    def __init__(
        self,
        *,
        cluster: str = DEFAULT_KAFKA_CLUSTER,
        kafka_conn_id: str | None = None,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **kwargs)
        self.cluster = cluster
        self.kafka_conn_id = kafka_conn_id

    def _left(self, what: str, left: list[str]) -> bool:
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
    """Succeeds when a plan is done, and fails when some of its moves are not. Result: moves by state."""

    template_fields: Sequence[str] = ("cluster", "plan_id")

    def __init__(self, *, plan_id: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_id = plan_id

    def poke(self, context: Context) -> PokeReturnValue:
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            counts = fleet.ended(self.plan_id)
        if counts is not None and set(counts) - {"done"}:
            raise AirflowFailException(f"plan {self.plan_id} has ended with {counts}")
        return PokeReturnValue(counts is not None, counts)
