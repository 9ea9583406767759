"""Runs one coordinator: connects, stands for election, serves, and withdraws on SIGTERM."""

from __future__ import annotations

import logging
import signal
from types import FrameType

from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.base.http_server import HttpConnections, HttpServer
from rtolap.base.settings import Settings
from rtolap.coordinator.applications.list_places import ListPlaces
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.rest import build_app
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.zookeeper import ZooKeeperStore

log = logging.getLogger(__name__)

GRACEFUL_S = 5


def run(settings: Settings, topics: TopicsOf) -> None:
    """Serve until SIGTERM or SIGINT. `topics`: name of a Kafka cluster → its topic catalogue.

    On the way out: 1. requests under way are answered (at most `GRACEFUL_S`), 2. the candidacy is withdrawn,
    so that a standby takes over at once, 3. the session ends. A coordinator that is killed instead is
    replaced when its session times out.
    """
    token = settings.token()
    store = ZooKeeperStore(
        settings.zookeeper, root=settings.zookeeper_root, session_timeout_s=settings.session_timeout_s
    )
    try:
        coordinator = Coordinator(
            ClusterMetadata(store, SystemClock()),
            topics,
            object_store_uri=settings.object_store,
            list_places=ListPlaces.of(settings),
            url=f"http://{settings.reached_at()}:{settings.coordinator_port}",
        )
        try:
            limits = settings.http_limits()
            server = HttpServer(
                build_app(coordinator, token, limits),
                HttpConnections(coordinator.metrics.registry, limits),
                host=settings.host,
                port=settings.coordinator_port,
                graceful_s=GRACEFUL_S,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _served)
            server.run()
            if not server.started:
                raise Unavailable(
                    f"the coordinator cannot serve on {settings.host}:{settings.coordinator_port}",
                    action="free the port, or set RTOLAP_COORDINATOR_PORT",
                )
        finally:
            coordinator.close()
    finally:
        store.close()
        log.info("coordinator ended")


def _served(number: int, frame: FrameType | None) -> None:
    """uvicorn handles signals while it serves and raises them once more afterwards: by then we are ending."""
