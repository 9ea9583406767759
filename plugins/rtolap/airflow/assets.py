"""The watched assets. They are declared once, here, and imported: a second declaration makes a watcher
flap."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher

from rtolap.airflow.triggers.cubes import QueueTrigger
from rtolap.airflow.triggers.loaded import PartitionsTrigger
from rtolap.airflow.triggers.replication import CaughtUpTrigger
from rtolap.airflow.triggers.table_versions import TableVersionTrigger

REMOTE_PERSISTED = Asset(
    name="rtolap_remote_persisted",
    uri="x-rtolap://queue/remote_persisted",
    watchers=[AssetWatcher(name="rtolap_queue", trigger=QueueTrigger())],
)

PARTITION_COMPLETE = Asset(
    name="rtolap_partition_complete",
    uri="x-rtolap://tables/partition_complete",
    watchers=[AssetWatcher(name="rtolap_partitions", trigger=PartitionsTrigger())],
)

SUBSCRIPTION_CAUGHT_UP = Asset(
    name="rtolap_subscription_caught_up",
    uri="x-rtolap://hbase/subscription_caught_up",
    watchers=[AssetWatcher(name="rtolap_subscriptions", trigger=CaughtUpTrigger())],
)


def table_versions(database: str, table: str) -> Asset:
    """Return the asset of a stored table's versions: an event when there are new ones, whoever loads them."""
    path = f"{quote(database, safe='')}/{quote(table, safe='')}"
    trigger = TableVersionTrigger(database=database, table=table)
    return Asset(
        name=f"rtolap_versions_{database}.{table}",
        uri=f"x-rtolap://tables/{path}/versions",
        watchers=[AssetWatcher(name=f"rtolap_versions_{database}.{table}", trigger=trigger)],
    )
