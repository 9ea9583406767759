"""Runs the publishers of the declared publications, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its publisher; clearing a
task restarts it, and no file is published twice. See docs/iceberg.md.
"""

from __future__ import annotations

from rtolap.airflow.declared import PUBLICATIONS
from rtolap.airflow.operators.services import PublicationOperator, declared_services, service_dag

with service_dag(PUBLICATIONS, __doc__):
    PublicationOperator.partial(
        task_id="publisher", map_index_template="{{ task.publication }}"
    ).expand_kwargs(declared_services(PUBLICATIONS))
