"""The ZooKeeper that keeps what is recorded of the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.base.settings import Settings
from rtolap.metadata.store import MetadataStore
from rtolap.metadata.zookeeper import ZooKeeperStore


@contextmanager
def open_metadata(settings: Settings) -> Iterator[MetadataStore]:
    store = ZooKeeperStore(
        settings.zookeeper, root=settings.zookeeper_root, session_timeout_s=settings.session_timeout_s
    )
    try:
        yield store
    finally:
        store.close()
