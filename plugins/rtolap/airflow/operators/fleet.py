"""Plans for Kafka's brokers: made, and handed to the mover once a person has approved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.airflow.operators.window_approval import responder
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

_GIB = 1 << 30
APPROVE = "Approve"


class PlanFleetOperator(BaseOperator):
    """Plans `disks`, `rack`, or the `drain` of `broker`, and changes nothing. Skipped where nothing is to be
    moved. Result: path, digest, why, partitions, bytes, expected time, and `text` for who approves it."""

    template_fields: Sequence[str] = ("broker", "cluster", "throttle_bytes_per_s")

    def __init__(
        self,
        *,
        kind: str,
        broker: int | str | None = None,
        cluster: str = DEFAULT_KAFKA_CLUSTER,
        throttle_bytes_per_s: int | str = 50_000_000,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.broker = broker
        self.cluster = cluster
        self.throttle_bytes_per_s = throttle_bytes_per_s
        self.kafka_conn_id = kafka_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        broker = None if self.broker in (None, "") else int(str(self.broker))
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            planned = fleet.plan(self.kind, broker, int(self.throttle_bytes_per_s))
        if not planned["partitions"]:
            raise AirflowSkipException(f"nothing is to be moved: {'; '.join(planned['why'])}")
        return {**planned, "text": plan_text(planned)}


class SubmitPlanOperator(BaseOperator):
    """Hands a plan to the mover as it was approved. `planned`: the result of the plan's task; `answer`: of
    Airflow's approval, whose responder is who submits; without one, nothing is submitted. Result: its id."""

    template_fields: Sequence[str] = ("planned", "answer", "cluster")

    def __init__(
        self,
        *,
        planned: Any,
        answer: Any,
        cluster: str = DEFAULT_KAFKA_CLUSTER,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.planned = planned
        self.answer = answer
        self.cluster = cluster
        self.kafka_conn_id = kafka_conn_id

    def execute(self, context: Context) -> str:
        by = responder(self.answer or {})
        if by is None or list(self.answer.get("chosen_options", ())) != [APPROVE]:
            raise AirflowFailException("nobody has approved the plan, so nothing is submitted")
        with open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            plan_id: str = fleet.submit(self.planned, by)
        self.log.info("plan %s, approved by %s", plan_id, by)
        return plan_id


def plan_text(planned: Mapping[str, Any]) -> str:
    """Return what the form shows: why, how much, how long, and which plan exactly."""
    lines = [f"- {reason}" for reason in planned["why"]]
    lines += [
        f"- {planned['partitions']} partitions change",
        f"- {planned['between_brokers_bytes'] / _GIB:.1f} GiB between brokers, "
        f"{planned['between_disks_bytes'] / _GIB:.1f} GiB between disks of one",
        f"- about {planned['expected_s'] / 60:.0f} min under the throttle",
        f"- digest {planned['digest'][:12]}",
    ]
    return "\n".join(lines)
