"""Plans for Kafka's brokers, and operations on their lives: done once a person has approved them.

What another try would not mend (a plan that was changed, or does not fit the cluster any more; a step that a
broker's life does not have) fails a task at once: see `airflow.errors`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.on_demand import open_fleet
from rtolap.airflow.links import PageLink
from rtolap.airflow.operators.coordinator import started_by
from rtolap.airflow.operators.window_approval import responder
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.fleet.operations.cluster import OpenedFleet

_GIB = 1 << 30
APPROVE = "Approve"


class FleetOperator(BaseOperator):
    """Base of what is planned or done for a Kafka cluster. It is reached as `FleetHook` says."""

    operator_extra_links: tuple[BaseOperatorLink, ...] = (PageLink(),)

    def __init__(
        self, *, cluster: str = DEFAULT_KAFKA_CLUSTER, kafka_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.kafka_conn_id = kafka_conn_id

    @contextmanager
    def opened(self) -> Iterator[OpenedFleet]:
        with final_at_once(), open_fleet(self.cluster, self.kafka_conn_id).opened() as fleet:
            yield fleet


class PlanFleetOperator(FleetOperator):
    """Plans `disks`, `rack`, or the `drain` of `broker`, and changes nothing. The task is skipped when
    nothing has to move, unless `may_be_empty`. The result has path, digest, reasons, partitions, bytes,
    expected time, and `text` for the person who approves it."""

    template_fields: Sequence[str] = ("broker", "cluster", "throttle_bytes_per_s")

    def __init__(
        self,
        *,
        kind: str,
        broker: int | str | None = None,
        throttle_bytes_per_s: int | str = 50_000_000,
        may_be_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.broker = broker
        self.throttle_bytes_per_s = throttle_bytes_per_s
        self.may_be_empty = may_be_empty

    def execute(self, context: Context) -> dict[str, Any]:
        broker = None if self.broker in (None, "") else int(str(self.broker))
        with self.opened() as fleet:
            planned = fleet.plan(self.kind, broker, int(self.throttle_bytes_per_s))
        if not planned["partitions"] and not self.may_be_empty:
            raise AirflowSkipException(f"nothing is to be moved: {'; '.join(planned['why'])}")
        return {**planned, "text": plan_text(planned)}


class SubmitPlanOperator(FleetOperator):
    """Hands the approved plan to the mover. `planned` is the result of the plan's task. `answer` is the
    result of Airflow's approval, whose responder counts as the submitter; without an approval, nothing is
    submitted. The result is the plan's id; None when nothing has to move."""

    template_fields: Sequence[str] = ("planned", "answer", "cluster")

    def __init__(self, *, planned: Any, answer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned = planned
        self.answer = answer

    def execute(self, context: Context) -> str | None:
        by = approver(self.answer)
        with self.opened() as fleet:
            plan_id = fleet.submit(self.planned, by)
        self.log.info("plan %s, approved by %s", plan_id, by)
        return plan_id


class CancelPlanOperator(FleetOperator):
    """Cancels the plan that is carried out: what has not begun does not begin, and what is incomplete is
    undone. Whoever has started the run counts as who cancels. A repetition changes nothing. The result is the
    mover's answer."""

    template_fields: Sequence[str] = ("plan_id", "reason", "cluster")

    def __init__(self, *, plan_id: str, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_id = plan_id
        self.reason = reason

    def execute(self, context: Context) -> str:
        by = started_by(context)
        with self.opened() as fleet:
            answer = fleet.cancel(self.plan_id, by, self.reason)
        self.log.info("%s, asked by %s", answer, by)
        return answer


class BrokerOperationOperator(FleetOperator):
    """Performs an operation on a broker's life, once for each run. `repair` begins its repair, after which
    its machine may be stopped. `repaired` ends the repair, after which it may be started. `retire` retires an
    empty broker. `answer` is the result of Airflow's approval, whose responder counts as the operator;
    without an approval, nothing is done. The result is the broker's state."""

    template_fields: Sequence[str] = ("broker", "answer", "cluster")

    def __init__(
        self,
        *,
        operation: Literal["repair", "repaired", "retire"],
        broker: int | str,
        answer: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.operation = operation
        self.broker = broker
        self.answer = answer

    def execute(self, context: Context) -> str:
        by, broker = approver(self.answer), int(self.broker)
        ti = context["ti"]
        run = f"{ti.dag_id}, run {ti.run_id}"
        operation_id = hashlib.sha256(f"{run}: {self.operation}".encode()).hexdigest()[:32]
        with self.opened() as fleet:
            operations = {
                "repair": fleet.brokers.begin_repair,
                "repaired": fleet.brokers.end_repair,
                "retire": fleet.brokers.retire,
            }
            state = str(operations[self.operation](broker, by, f"approved in Airflow: {run}", operation_id))
        self.log.info("broker %d is %s, as %s has approved", broker, state, by)
        return state


def approver(answer: Mapping[str, Any] | None) -> str:
    """Return who has approved. Fails the task where nobody has."""
    by = responder(answer or {})
    if by is None or answer is None or list(answer.get("chosen_options", ())) != [APPROVE]:
        raise AirflowFailException("nobody has approved it, so nothing is done")
    return by


def plan_text(planned: Mapping[str, Any]) -> str:
    """Return what the form shows: why, how much, how long, by which rules, and which plan exactly."""
    placement = planned["placement"]
    lines = [f"- {reason}" for reason in planned["why"]]
    lines += [
        f"- {planned['partitions']} partitions change",
        f"- {planned['between_brokers_bytes'] / _GIB:.1f} GiB between brokers, "
        f"{planned['between_disks_bytes'] / _GIB:.1f} GiB between disks of one",
        "- without end under the throttle"
        if planned["expected_s"] is None
        else f"- about {planned['expected_s'] / 60:.0f} min under the throttle",
        f"- by the placement rules of {placement} in the registry"
        if placement
        else "- without placement rules: the registry does not declare the cluster",
        f"- digest {planned['digest'][:12]}",
    ]
    return "\n".join(lines)
