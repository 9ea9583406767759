"""Replaces a range of a cube's history by what a batch source says of it. Started by hand, or by other DAGs.

    airflow dags trigger rtolap_batch_backfill --conf '{"cube": "flights", "from": "2013-01-01T00:00:00Z",
        "to": "2013-02-01T00:00:00Z", "source": {"format": "parquet", "path": "file:///data/exports/2013/"}}'

The range begins and ends where segments do. Spark reads the source, each row as an event of the cube's topic;
`rtolap_segment_build`, which has to be unpaused, builds the segments. A run ends when they are READY, each
replaced in one step, and fails with what failed. Safe to clear, to retry and to run twice: each run is one
batch.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.batches import BatchOperator
from rtolap.airflow.sensors.batches import BatchReadySensor

OF_RUN = "'run-' ~ (dag_run.run_id | replace(':', '') | replace('+', '_') | replace('.', '_'))"
BATCH = f"{{{{ params.batch or {OF_RUN} }}}}"

with DAG(
    dag_id="rtolap_batch_backfill",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=4,
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "from": Param(type="string", format="date-time", description="Begin of the range: of a segment."),
        "to": Param(type="string", format="date-time", description="End of the range: of a segment."),
        "source": Param(type="object", description="Source: format, path, options, columns, outside."),
        "batch": Param(
            None, type=["string", "null"], description="Id of the batch; none makes one of the run's."
        ),
    },
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):
    staged = BatchOperator(
        task_id="stage",
        cube="{{ params.cube }}",
        batch=BATCH,
        range_start="{{ params['from'] }}",
        range_end="{{ params['to'] }}",
        source="{{ params.source | tojson }}",
        retries=3,
        retry_delay=timedelta(seconds=20),
    )
    ready = BatchReadySensor(
        task_id="ready",
        cube="{{ params.cube }}",
        batch=BATCH,
        timeout=timedelta(days=7).total_seconds(),
        retries=100,
    )
    staged >> ready
