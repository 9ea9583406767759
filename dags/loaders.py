"""Runs the declared loaders, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its loader; clearing a
task restarts it, and nothing is loaded twice. One that was stopped by `rtolap loader stop` stays so, and its
task waits: clear it to go on. See docs/airflow.md.
"""

from __future__ import annotations

from rtolap.airflow.declared import LOADERS
from rtolap.airflow.operators.services import LoaderOperator, declared_services, service_dag

with service_dag(LOADERS, __doc__):
    LoaderOperator.partial(task_id="loader", map_index_template="{{ task.loader }}").expand_kwargs(
        declared_services(LOADERS)
    )
