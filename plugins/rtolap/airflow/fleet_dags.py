"""The DAGs of Kafka's brokers. Each is started by hand. Those that change brokers check before each step, and
ask a person.

    fleet_dag    nothing_moves → all_in_sync → plan → approve → submit → watch → in_sync_again
    repair_dag   nothing_moves → may_stop → approve → repair → well_again → repaired → serves → in_sync_again
    retire_dag   nothing_moves → plan → approve → submit → watch → empty → in_sync_again → retire → gone
    cancel_dag   cancel: of a plan that is carried out, and that ends the run which watches it

They only orchestrate: what a step may do, and when it is refused, is decided by `fleet.planning` and
`fleet.lifecycle`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.fleet import (
    BrokerOperationOperator,
    CancelPlanOperator,
    PlanFleetOperator,
    SubmitPlanOperator,
)
from rtolap.airflow.sensors.fleet import (
    POLL_S,
    BrokerMayRetireSensor,
    BrokerMayStopSensor,
    BrokerStateSensor,
    NoMovesRunningSensor,
    NoUnderReplicatedPartitionSensor,
    PlanEndedSensor,
)
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

_BROKER = "{{ params.broker }}"
# A look is free, and moves take days, through losses of workers, triggerers and brokers.
_LOOKS: dict[str, Any] = {
    "cluster": "{{ params.cluster }}",
    "poll_s": "{{ params.poll_s }}",
    "retries": 100,
    "retry_delay": timedelta(seconds=30),
}
_CHANGES: dict[str, Any] = {"cluster": "{{ params.cluster }}"}
# What cannot be mended by another try fails at once: see `airflow.errors`.
_RETRIES: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(minutes=1)}
_THROTTLE = Param(50_000_000, type="integer", minimum=1, description="Bytes a second of each broker.")


def fleet_dag(dag_id: str, kind: str, subject: str, doc_md: str | None, *, of_broker: bool = False) -> DAG:
    """Return a DAG that makes a plan of `kind`, of the broker of its run where `of_broker`."""
    with _dag(dag_id, doc_md, of_broker=of_broker, throttle_bytes_per_s=_THROTTLE) as dag:
        checks: list[Any] = [NoMovesRunningSensor(task_id="nothing_moves", **_LOOKS)]
        if not of_broker:  # the broker to be drained may be the one that is out of sync
            checks.append(NoUnderReplicatedPartitionSensor(task_id="all_in_sync", **_LOOKS))
        plan, approve, submit, watch = _moved(kind, subject, of_broker=of_broker)
        again = NoUnderReplicatedPartitionSensor(task_id="in_sync_again", **_LOOKS)
        checks >> plan >> approve >> submit >> watch >> again
    return dag


def repair_dag(dag_id: str, doc_md: str | None) -> DAG:
    """Return a DAG that stops a broker for repair, and restores it when a person confirms that its machine is
    repaired.
    """
    with _dag(dag_id, doc_md, of_broker=True) as dag:
        nothing_moves = NoMovesRunningSensor(task_id="nothing_moves", **_LOOKS)
        may_stop = BrokerMayStopSensor(task_id="may_stop", broker=_BROKER, **_LOOKS)
        approve = ApprovalOperator(
            notifiers=Notify(),
            task_id="approve",
            subject="Stop a broker, and repair its machine?",
            body="{{ ti.xcom_pull(task_ids='may_stop')['text'] }}",
        )
        repair = BrokerOperationOperator(
            task_id="repair", operation="repair", broker=_BROKER, answer=approve.output, **_CHANGES
        )
        well_again = ApprovalOperator(
            notifiers=Notify(),
            task_id="well_again",
            subject="Is the machine repaired?",
            body="Broker {{ params.broker }} may be stopped now. Approve when it may serve, then start it.",
        )
        repaired = BrokerOperationOperator(
            task_id="repaired", operation="repaired", broker=_BROKER, answer=well_again.output, **_CHANGES
        )
        serves = BrokerStateSensor(task_id="serves", broker=_BROKER, state="SERVING", **_LOOKS)
        again = NoUnderReplicatedPartitionSensor(task_id="in_sync_again", **_LOOKS)
        nothing_moves >> may_stop >> approve >> repair >> well_again >> repaired >> serves >> again
    return dag


def retire_dag(dag_id: str, doc_md: str | None) -> DAG:
    """Return a DAG that empties a broker, retires it, and ends when the cluster has forgotten it."""
    with _dag(dag_id, doc_md, of_broker=True, throttle_bytes_per_s=_THROTTLE) as dag:
        nothing_moves = NoMovesRunningSensor(task_id="nothing_moves", **_LOOKS)
        subject = "Move all replicas away from a broker, and retire it?"
        plan, approve, submit, watch = _moved("drain", subject, of_broker=True, may_be_empty=True)
        empty = BrokerMayRetireSensor(task_id="empty", broker=_BROKER, **_LOOKS)
        again = NoUnderReplicatedPartitionSensor(task_id="in_sync_again", **_LOOKS)
        retire = BrokerOperationOperator(
            task_id="retire", operation="retire", broker=_BROKER, answer=approve.output, **_CHANGES
        )
        gone = BrokerStateSensor(task_id="gone", broker=_BROKER, state="RETIRED", **_LOOKS)
        nothing_moves >> plan >> approve >> submit >> watch >> empty >> again >> retire >> gone
    return dag


def cancel_dag(dag_id: str, doc_md: str | None) -> DAG:
    """Return a DAG that cancels the plan of its run. Whoever starts it decides; nobody else is asked."""
    with _dag(
        dag_id,
        doc_md,
        of_broker=False,
        looks=False,
        plan_id=Param(type="string", minLength=1, description="Id of the plan that is carried out."),
        reason=Param("", type="string", description="Reason, stored with the request."),
    ) as dag:
        CancelPlanOperator(
            task_id="cancel", plan_id="{{ params.plan_id }}", reason="{{ params.reason }}", **_CHANGES
        )
    return dag


def _dag(dag_id: str, doc_md: str | None, *, of_broker: bool, looks: bool = True, **params: Param) -> DAG:
    broker = {"broker": Param(type="integer", minimum=0, description="Id of the broker.")}
    poll_s = Param(POLL_S, type="number", minimum=1, description="Seconds between looks at the cluster.")
    return DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        max_active_runs=1,
        catchup=False,
        default_args={**_RETRIES, "on_failure_callback": Notify()},
        params={
            **(broker if of_broker else {}),
            "cluster": Param(DEFAULT_KAFKA_CLUSTER, type="string", description="Kafka cluster, by its name."),
            **params,
            **({"poll_s": poll_s} if looks else {}),
        },
        tags=["rtolap"],
        doc_md=doc_md,
    )


def _moved(
    kind: str, subject: str, *, of_broker: bool, may_be_empty: bool = False
) -> tuple[PlanFleetOperator, ApprovalOperator, SubmitPlanOperator, PlanEndedSensor]:
    plan = PlanFleetOperator(
        task_id="plan",
        kind=kind,
        broker=_BROKER if of_broker else None,
        cluster=_LOOKS["cluster"],
        throttle_bytes_per_s="{{ params.throttle_bytes_per_s }}",
        may_be_empty=may_be_empty,
    )
    approve = ApprovalOperator(
        notifiers=Notify(),
        task_id="approve",
        subject=subject,
        body="{{ ti.xcom_pull(task_ids='plan')['text'] }}",
    )
    submit = SubmitPlanOperator(task_id="submit", planned=plan.output, answer=approve.output, **_CHANGES)
    watch = PlanEndedSensor(task_id="watch", plan_id=submit.output, **_LOOKS)
    return plan, approve, submit, watch
