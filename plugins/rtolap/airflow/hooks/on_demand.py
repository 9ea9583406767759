"""The hooks that load a client of Kafka or of ZooKeeper, imported only when one is opened.

Operators, sensors and triggers are imported each time DAGs are parsed, and these clients would make that
slow. So what is used of them while DAGs are parsed stands here, and just these functions import within
themselves; `hooks.kafka`, `hooks.hbase` and `hooks.fleet` are imported nowhere else but by the provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.fleet import FleetHook
    from rtolap.airflow.hooks.hbase import HBaseReplication
    from rtolap.airflow.hooks.kafka import KafkaClusterHook

HBASE_CONN_TYPE = "hbase"
HBASE_DEFAULT = "hbase_default"

DueArguments = dict[str, Any]  # the fields of `sep.status.wait.DueLogs`, as JSON has them


def open_kafka(cluster: str = DEFAULT_KAFKA_CLUSTER, kafka_conn_id: str | None = None) -> KafkaClusterHook:
    """`kafka_conn_id`: None for the connection of the cluster's name. Nothing is connected to yet."""
    from rtolap.airflow.hooks.kafka import KafkaClusterHook

    return KafkaClusterHook(cluster, kafka_conn_id)


def open_replication(hbase_conn_id: str) -> HBaseReplication:
    """Nothing is connected to yet."""
    from rtolap.airflow.hooks.hbase import HBaseReplication

    return HBaseReplication(hbase_conn_id)


def open_fleet(cluster: str, kafka_conn_id: str | None = None) -> FleetHook:
    """As `open_kafka`."""
    from rtolap.airflow.hooks.fleet import FleetHook

    return FleetHook(cluster, kafka_conn_id)
