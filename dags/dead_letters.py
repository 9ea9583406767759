"""Replays or drops dead letters of a loader: records that it has refused.

Started by hand, and by the page. A replay loads each open letter once into the loader's table, by the
loader's present definition; what is refused again stays open. A drop gives letters up for ever; they stay in
their topic. The loader has to run.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.letters import DROP, REPLAY, DeadLettersOperator

with DAG(
    dag_id="rtolap_dead_letters",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,  # one at a time replays: the next one waits, and does not fail
    params={
        "loader": Param(type="string", minLength=1, description="Name of the loader."),
        "action": Param(REPLAY, type="string", enum=[REPLAY, DROP], description="What is done with them."),
        "reason": Param("", type="string", description="Only those that were refused for this reason."),
        "places": Param(
            "", type="string", description="Only those of these places, PARTITION/OFFSET, comma-separated."
        ),
        "why": Param("", type="string", description="Of a drop: a reason, which is kept."),
        "out_of_order": Param(
            False,
            type="boolean",
            description="Replay also where an older row replaces a newer one.",
        ),
    },
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):
    DeadLettersOperator(
        task_id="act",
        loader="{{ params.loader }}",
        action="{{ params.action }}",
        reason="{{ params.reason }}",
        places="{{ params.places }}",
        why="{{ params.why }}",
        out_of_order="{{ params.out_of_order }}",
        retries=2,
    )
