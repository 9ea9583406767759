"""The DAGs of plans for Kafka's brokers: one shape, plan → approve → submit → watch."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from rtolap.airflow.operators.fleet import PlanFleetOperator, SubmitPlanOperator
from rtolap.airflow.sensors.fleet import (
    NoMovesRunningSensor,
    NoUnderReplicatedPartitionSensor,
    PlanEndedSensor,
)
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

CLUSTER = "{{ params.cluster }}"
_POLL_S = 60.0


def fleet_dag(dag_id: str, kind: str, subject: str, doc_md: str | None, *, of_broker: bool = False) -> DAG:
    """A DAG, started by hand, that makes a plan of `kind`, of the broker of its run where `of_broker`."""
    params: dict[str, Any] = {
        "cluster": Param(DEFAULT_KAFKA_CLUSTER, type="string", description="Kafka cluster, by its name."),
        "throttle_bytes_per_s": Param(50_000_000, type="integer", minimum=1, description="Of each broker."),
    }
    if of_broker:
        params["broker"] = Param(type="integer", minimum=0, description="Id of the broker.")
    with DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        max_active_runs=1,
        catchup=False,
        params=params,
        tags=["rtolap"],
        doc_md=doc_md,
    ) as dag:
        before: list[Any] = [
            NoMovesRunningSensor(task_id="nothing_moves", cluster=CLUSTER, poke_interval=_POLL_S)
        ]
        if not of_broker:  # the broker to be drained may be the one that is out of sync
            before.append(
                NoUnderReplicatedPartitionSensor(
                    task_id="all_in_sync", cluster=CLUSTER, poke_interval=_POLL_S
                )
            )
        plan = PlanFleetOperator(
            task_id="plan",
            kind=kind,
            broker="{{ params.broker }}" if of_broker else None,
            cluster=CLUSTER,
            throttle_bytes_per_s="{{ params.throttle_bytes_per_s }}",
        )
        approve = ApprovalOperator(
            task_id="approve", subject=subject, body="{{ ti.xcom_pull(task_ids='plan')['text'] }}"
        )
        submit = SubmitPlanOperator(
            task_id="submit", planned=plan.output, answer=approve.output, cluster=CLUSTER, retries=3
        )
        watch = PlanEndedSensor(
            task_id="watch",
            plan_id=submit.output,
            cluster=CLUSTER,
            poke_interval=_POLL_S,
        )
        after = NoUnderReplicatedPartitionSensor(
            task_id="in_sync_again", cluster=CLUSTER, poke_interval=_POLL_S
        )
        before >> plan >> approve >> submit >> watch >> after
    return dag
