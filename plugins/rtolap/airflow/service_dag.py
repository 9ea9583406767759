"""The DAGs that keep declared services running: a task without end for each, mapped over the declarations.

Unpausing such a DAG starts the services; its run ends when no task is left, and the next one begins at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Variable, XComArg, task

from rtolap.airflow.declared import Kind
from rtolap.base.settings import Settings

# For about a day, ever more slowly, before a human is needed.
_RETRIES: dict[str, Any] = {
    "retries": 100,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
}


def service_dag(kind: Kind, doc_md: str | None) -> DAG:
    """The DAG `rtolap_<plural>`, to be used with `with`."""
    return DAG(
        dag_id=f"rtolap_{kind.plural}",
        schedule="@continuous",
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        max_active_runs=1,
        catchup=False,
        default_args=_RETRIES,  # of every task: a wrong declaration would else make run after run
        tags=["rtolap"],
        doc_md=doc_md,
    )


def declared_services(kind: Kind) -> XComArg:
    """The task that reads the declarations; its result is the arguments of an operator, one set each."""

    @task
    def declared() -> list[dict[str, Any]]:
        variable = Variable.get(kind.variable, default=None, deserialize_json=True)
        return kind.declared(variable, Settings().include_dir)

    return declared()
