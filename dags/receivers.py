"""Runs the declared receivers, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its receiver; clearing a
task restarts it. The processes outlive Airflow's own: see docs/airflow.md.
"""

from __future__ import annotations

from rtolap.airflow.declared import RECEIVERS
from rtolap.airflow.operators.services import ReceiverOperator, declared_services, service_dag
from rtolap.airflow.operators.topics import CheckTopicsOperator

with service_dag(RECEIVERS, __doc__):
    # As `kafka_default` reaches them: a receiver without its topic would only wait.
    topics = CheckTopicsOperator(task_id="topics")
    # The retries come after the agent has given up on a crashing receiver, too.
    topics >> ReceiverOperator.partial(
        task_id="receiver", map_index_template="{{ task.receiver_id }}"
    ).expand_kwargs(declared_services(RECEIVERS))
