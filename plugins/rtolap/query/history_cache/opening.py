"""The cache that the settings of a query service ask for."""

from __future__ import annotations

import logging
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.object_store.store import ObjectStore
from rtolap.query.cluster import Cluster
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper

log = logging.getLogger(__name__)


def open_cache(settings: Settings, store: ObjectStore) -> HistoryCache | None:
    """None where no folder is named. Raises DefinitionError for a folder that cannot be the cache's."""
    if settings.history_cache_dir is None:
        return None
    root = settings.history_cache_dir.resolve()
    if store.is_local:
        stored = Path(store.root).resolve()
        if root == stored or root in stored.parents or stored in root.parents:
            raise DefinitionError(
                "the history cache and the object store lie in one folder",
                found=f"RTOLAP_HISTORY_CACHE_DIR={root}, the store at {stored}",
                action="name a folder beside the store's",
            )
        log.info("the object store is a local folder: a cache gains only where that is a slower disk's")
    try:
        return HistoryCache(CacheFolder(root))
    except OSError as error:
        raise DefinitionError(
            "the folder of the history cache cannot be used",
            expected="a folder that this process may write, RTOLAP_HISTORY_CACHE_DIR",
            found=str(error),
        ) from error


def open_keeper(
    settings: Settings, cache: HistoryCache, store: ObjectStore, cluster: Cluster, clock: Clock
) -> HistoryKeeper:
    """It does nothing before it is started."""
    return HistoryKeeper(
        cache,
        store,
        cluster.snapshots,
        clock,
        bytes_max=settings.history_cache_bytes_max,
        bytes_per_s=settings.history_cache_copy_bytes_per_s,
    )
