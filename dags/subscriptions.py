"""Runs the consumers of the declared subscriptions to HBase, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its consumer; clearing a
task restarts it, and no event is delivered twice. While none runs, HBase keeps what is written. See
docs/airflow.md.
"""

from __future__ import annotations

from rtolap.airflow.declared import SUBSCRIPTIONS
from rtolap.airflow.operators.services import SubscriptionOperator, declared_services, service_dag

with service_dag(SUBSCRIPTIONS, __doc__):
    SubscriptionOperator.partial(
        task_id="consumer", map_index_template="{{ task.subscription }}"
    ).expand_kwargs(declared_services(SUBSCRIPTIONS))
