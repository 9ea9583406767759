"""A storage node's process: its tablets, its Flight endpoint, its heartbeats, its metrics.

On the way out: 1. heartbeats end, 2. the endpoint takes no call any more, open ones have `drain_s` to end,
3. loads still under way are given up, 4. the compaction under way ends, 5. the tablets are closed.
A node that is killed instead recovers the same.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from types import TracebackType

from rtolap.base.flight_guard.limits import FlightLimits
from rtolap.base.metrics_server import MetricsServer
from rtolap.protocols.flight.endpoint import shut_down
from rtolap.protocols.storage.client import StorageClients
from rtolap.protocols.storage.heartbeats import HeartbeatClient
from rtolap.protocols.storage.messages import Heartbeat
from rtolap.stored.node.flight import StorageFlightServer
from rtolap.stored.node.heartbeats import Heartbeats
from rtolap.stored.node.metrics import node_metrics
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings

log = logging.getLogger(__name__)


class StorageService:
    """Serves from `start` to `stop`; a context manager that does both. `address` is the one given to
    endpoints.

    `drained`: whether no call was open any more when it had stopped; see
    `protocols.flight.endpoint.shut_down`.
    """

    def __init__(
        self,
        *,
        name: str,
        data: Path,
        host: str,
        port: int,
        metrics_port: int,
        token: str,
        endpoints: tuple[str, ...],
        endpoints_ca: Path | None = None,
        settings: StorageSettings | None = None,
        flight_limits: FlightLimits = FlightLimits(),
    ) -> None:
        """Recovers all tablets. `endpoints_ca`: PEM whom to trust for https endpoints; None: the system's.

        Raises Refused where another process serves the folder, Unavailable for a port that is taken."""
        self._settings = settings or StorageSettings()
        self.drained = True
        with contextlib.ExitStack() as closing:
            clients = StorageClients(token)
            closing.callback(clients.close)
            self.node = closing.enter_context(LocalNode(name, data, clients.at, self._settings))
            metrics = node_metrics(self.node)
            self._server = StorageFlightServer(
                self.node, host=host, port=port, token=token, metrics=metrics, limits=flight_limits
            )
            closing.callback(self._shut_down)
            self.address = f"{host}:{self._server.port}"
            self.metrics = MetricsServer(metrics, host=host, port=metrics_port, token=token)
            closing.callback(self.metrics.close)
            client = HeartbeatClient(endpoints, token, ca=endpoints_ca)
            closing.callback(client.close)
            self._heartbeats = Heartbeats(
                lambda beat: client.send(name, beat), self._beat, self._settings.heartbeat_every_s
            )
            closing.callback(self._heartbeats.stop)
            self._closing = closing.pop_all()

    def start(self) -> None:
        self.node.compactor.start()
        self._heartbeats.start()
        log.info("storage node %s serves at %s", self.node.name, self.address)

    def stop(self) -> None:
        self._closing.close()

    def _shut_down(self) -> None:
        self.drained = shut_down(self._server, self._settings.drain_s)

    def __enter__(self) -> StorageService:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _beat(self) -> Heartbeat:
        return Heartbeat(self.node.folder.node_id, self.address, self.node.folder.free_bytes())
