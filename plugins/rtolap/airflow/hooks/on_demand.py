"""The hooks that load a client of Kafka or of ZooKeeper, imported only when one is opened.

Operators, sensors and triggers are imported each time DAGs are parsed, and these clients would make that
slow. These functions load a hook's module by its name when they are called, as Airflow loads the hooks that
a provider names; `hooks.kafka`, `hooks.hbase` and `hooks.fleet` are imported nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.fleet import FleetHook
    from rtolap.airflow.hooks.hbase import HBaseReplication
    from rtolap.airflow.hooks.kafka import KafkaClusterHook


def open_kafka(cluster: str = DEFAULT_KAFKA_CLUSTER, kafka_conn_id: str | None = None) -> KafkaClusterHook:
    """Return a hook for the cluster, which has not connected yet. `kafka_conn_id` is None for the connection
    of the cluster's name."""
    hook: KafkaClusterHook = _hooks("kafka").KafkaClusterHook(cluster, kafka_conn_id)
    return hook


def open_replication(hbase_conn_id: str) -> HBaseReplication:
    """Return a hook that has not connected yet."""
    replication: HBaseReplication = _hooks("hbase").HBaseReplication(hbase_conn_id)
    return replication


def open_fleet(cluster: str, kafka_conn_id: str | None = None) -> FleetHook:
    """Return a FleetHook, imported on demand as in `open_kafka`."""
    hook: FleetHook = _hooks("fleet").FleetHook(cluster, kafka_conn_id)
    return hook


def fleet_hooks() -> ModuleType:
    """Return the module of `FleetHook`, imported on demand, for what concerns no single cluster."""
    return _hooks("fleet")


def _hooks(module: str) -> ModuleType:
    return import_module(f"rtolap.airflow.hooks.{module}")
