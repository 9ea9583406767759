"""The query process, as its settings ask for it: both servers over one service, until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from pathlib import Path
from types import FrameType

from rtolap.base.addresses import host_port
from rtolap.base.clock import Clock, SystemClock
from rtolap.base.cycle_collection import keep_blocks
from rtolap.base.errors import DefinitionError
from rtolap.base.hidden_pandas import show_pandas
from rtolap.base.optional import import_optional
from rtolap.base.settings import Settings
from rtolap.base.users import Users
from rtolap.metadata.cluster_store import show_refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.store import MetadataStore
from rtolap.object_store.store import ObjectStore, open_store
from rtolap.protocols.query.messages import HISTORY_CACHE_OFF, HistoryCacheReport
from rtolap.protocols.receiver.client import ReceiverClients
from rtolap.query.cluster.view import Cluster, Listing
from rtolap.query.cubes.history import EmbeddedHistory, LargeScans, MemoryBounds
from rtolap.query.cubes.realtime import FlightSource
from rtolap.query.engine_choice import EngineRules
from rtolap.query.history_cache.cache import HistoryCache
from rtolap.query.history_cache.folder import CacheFolder
from rtolap.query.history_cache.keeper import HistoryKeeper
from rtolap.query.history_cache.report import follow, report
from rtolap.query.http.server import make_app
from rtolap.query.lookups import Lookups
from rtolap.query.mysql.handshake import Tls
from rtolap.query.mysql.server import MySqlLimits, MySqlServer
from rtolap.query.query_log.folder import LogFolder
from rtolap.query.query_log.log import QueryLog
from rtolap.query.session_token import SessionTokens
from rtolap.query.spills.folder import Spills
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.stored.source import RemoteSource
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.servers.tls import load_context

log = logging.getLogger(__name__)

BLOCK_BYTES_MAX = 256 << 10  # what users send and get is given back at once, as they have it counted


class QueryProcess:
    """Owns the service, both servers and the receiver clients. The store stays its caller's."""

    def __init__(
        self,
        settings: Settings,
        store: MetadataStore,
        limits: QueryLimits = QueryLimits(),
        mysql_limits: MySqlLimits = MySqlLimits(),
        history_bounds: MemoryBounds = MemoryBounds(),
    ) -> None:
        # Flight hands buffers out as they lie in its messages; Arrow copies those it needs aligned, silently.
        os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")
        clock = SystemClock()
        users, token = Users.load(settings.users_file), settings.token()
        context, http_limits = server_context(settings), HttpLimits.from_settings(settings)
        self._clients = ReceiverClients(token)
        stored = RemoteSource(settings.stream_load_urls(), token, ca=settings.stream_load_ca)
        cluster = Cluster(ClusterMetadata(store, clock), clock, Listing(stored, clock))
        history_store = open_store(settings.object_store)
        cache = open_cache(settings, history_store)
        self.service = QueryService(
            cluster,
            open_history(settings, history_store, cache, history_bounds, limits),
            FlightSource(self._clients),
            Lookups(settings.include_dir),
            clock,
            limits,
            stored,
            session_tokens=SessionTokens(token),
            query_log=open_log(settings, clock),
        )
        self.keeper = None if cache is None else open_keeper(settings, cache, history_store, cluster, clock)
        if self.keeper is not None:
            follow(self.service.metrics.registry, self.keeper)
        self.mysql = MySqlServer(
            self.service,
            users,
            host=settings.host,
            port=settings.query_mysql_port,
            tls=None if context is None else Tls(context, settings.query_require_tls),
            limits=mysql_limits,
        )
        show_refused(self.service.metrics.registry, store)
        self.service.metrics.follow(
            self.mysql.connections,
            lambda: self.service.rewrites,
            lambda: self.service.coalesced_reads.waiting,
        )
        self._http = HttpServer(
            make_app(self.service, users, token, http_limits, self.mysql, self._cache_report),
            HttpConnections(self.service.metrics.registry, http_limits),
            host=settings.host,
            port=settings.query_http_port,
            tls=context,
            graceful_s=5,
        )

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; call from the main thread."""
        keep_blocks(BLOCK_BYTES_MAX)
        if self.keeper is not None:
            self.keeper.start()
        self.mysql.start()
        log.info("MySQL protocol on port %d", self.mysql.port)

        def stop(number: int, frame: FrameType | None) -> None:
            self._http.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        try:
            self._http.run()
        finally:
            self.close()

    def _cache_report(self, versions_max: int) -> HistoryCacheReport:
        return HISTORY_CACHE_OFF if self.keeper is None else report(self.keeper, versions_max)

    def close(self) -> None:
        self._http.should_exit = True
        self.mysql.close()
        if self.keeper is not None:
            self.keeper.close()
        self.service.close()
        self._clients.close()


def open_history(
    settings: Settings,
    store: ObjectStore,
    cache: HistoryCache | None,
    bounds: MemoryBounds,
    limits: QueryLimits,
) -> EmbeddedHistory:
    """Open history, with the engine of large reads where the settings declare one.

    Raises DefinitionError for a declaration that cannot be used.
    """
    scans: LargeScans | None = None
    if settings.history_spark.strip():  # only then is pyspark needed, which takes seconds to import
        show_pandas()
        spark = import_optional(
            "rtolap.query.spark.scans",
            needs="RTOLAP_HISTORY_SPARK needs Spark Connect's client",
            package="pyspark[connect]",
            extra="spark",
        )
        scans = spark.open_scans(settings, store, limits.memory_bytes)
    rules = EngineRules(
        has_spark=scans is not None,
        spark_bytes_min=settings.history_spark_bytes_min,
        local_bytes_max=settings.history_local_bytes_max,
    )
    spills = Spills(Path(limits.spill_folder), limits.spill_free_bytes_min)
    return EmbeddedHistory(store, cache, bounds, scans, rules, spills)


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the server; None without a certificate.

    Raises DefinitionError for files that cannot be used together.
    """
    certificate, key = settings.query_tls_certificate, settings.query_tls_key
    if certificate is None and key is None:
        if settings.query_require_tls:
            raise DefinitionError(
                "TLS is required, but there is no certificate",
                action="set RTOLAP_QUERY_TLS_CERTIFICATE and RTOLAP_QUERY_TLS_KEY",
            )
        return None
    if certificate is None or key is None:
        missing = "RTOLAP_QUERY_TLS_KEY" if key is None else "RTOLAP_QUERY_TLS_CERTIFICATE"
        raise DefinitionError("TLS needs a certificate and its key", action=f"set {missing}")
    return load_context(certificate, key)


def open_log(settings: Settings, clock: Clock) -> QueryLog:
    """Open the query log, on the disk unless it may have no bytes there."""
    service = host_port(settings.named_at(), settings.query_http_port)
    texts = settings.query_log_texts
    if settings.query_log_bytes_max == 0:
        return QueryLog(service=service, texts=texts)
    folder = settings.query_log_folder or settings.data_dir / "query_log"
    keep_ms = round(settings.query_log_keep_s * 1000)
    kept = LogFolder(folder, clock, bytes_max=settings.query_log_bytes_max, keep_ms=keep_ms)
    return QueryLog(kept, service=service, texts=texts)


def open_cache(settings: Settings, store: ObjectStore) -> HistoryCache | None:
    """Open the history cache; return None if no folder is configured.

    Raises DefinitionError for a folder that cannot be the cache's.
    """
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
    """Open a keeper, which does nothing before it is started."""
    return HistoryKeeper(
        cache,
        store,
        cluster.snapshots,
        clock,
        bytes_max=settings.history_cache_bytes_max,
        bytes_per_s=settings.history_cache_copy_bytes_per_s,
    )
