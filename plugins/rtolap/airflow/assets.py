"""The watched asset. Declared here once and imported: a second declaration makes its watcher flap."""

from __future__ import annotations

from airflow.sdk import Asset, AssetWatcher

from rtolap.airflow.triggers.queue import QueueTrigger

REMOTE_PERSISTED = Asset(
    name="rtolap_remote_persisted",
    uri="x-rtolap://queue/remote_persisted",
    watchers=[AssetWatcher(name="rtolap_queue", trigger=QueueTrigger())],
)
