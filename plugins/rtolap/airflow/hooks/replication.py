"""HBase's replication for operators, sensors and triggers, which are imported while DAGs are parsed: what
they use, and its opening, which loads a client of ZooKeeper only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtolap.airflow.hooks.hbase import HBaseReplication

HBASE_CONN_TYPE = "hbase"
HBASE_DEFAULT = "hbase_default"

DueArguments = dict[str, Any]  # the fields of `sep.status.wait.DueLogs`, as JSON has them


def open_replication(hbase_conn_id: str) -> HBaseReplication:
    """Nothing is connected to yet."""
    from rtolap.airflow.hooks.hbase import HBaseReplication

    return HBaseReplication(hbase_conn_id)
