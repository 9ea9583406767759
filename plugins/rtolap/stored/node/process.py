"""A storage node's process: its tablets, its Flight endpoint, its heartbeats, its metrics.

On the way out: 1. heartbeats end, 2. bodies under way are answered, 3. the endpoint takes no call any more,
open ones have `drain_s` to end, 4. loads still under way are given up, 5. the compaction under way ends,
6. the tablets are closed.
A node that is killed instead recovers the same.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import httpx
import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError, Unavailable, from_dict
from rtolap.base.metrics import Family, Metrics
from rtolap.base.tls import trust
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.storage.client import StorageClients
from rtolap.protocols.storage.messages import Heartbeat, HeartbeatAnswer
from rtolap.protocols.stored_tables.messages import API
from rtolap.servers.flight_server import shut_down
from rtolap.servers.limits import FlightLimits, HttpLimits
from rtolap.servers.metrics_server import MetricsServer
from rtolap.stored.node.flight import StorageFlightServer
from rtolap.stored.node.load_door import LoadDoor, LoadDoorOptions
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.stream_load.periodic_task import PeriodicTask

log = logging.getLogger(__name__)

_HEARTBEAT_TIMEOUT_S = 5.0


class StorageService:
    """The service of a storage node, from `start` to `stop`; a context manager that calls both.

    Attributes:
        address: the address that endpoints get.
        drained: True if no call was open when it had stopped; see `servers.flight_server.shut_down`.
    """

    def __init__(
        self,
        *,
        name: str,
        data: Path,
        host: str,
        announced_host: str | None = None,
        port: int,
        metrics_port: int,
        token: str,
        endpoints: tuple[str, ...],
        endpoints_ca: Path | None = None,
        settings: StorageSettings | None = None,
        http_limits: HttpLimits,
        flight_limits: FlightLimits = FlightLimits(),
        loads: LoadDoorOptions | None = None,
    ) -> None:
        """Recover all tablets. `endpoints_ca` is the PEM that https endpoints are checked with; None means
        the system's. The node takes bodies of loads where `loads` says how. `announced_host`: where others
        reach `host`; None means there.

        Raises Refused where another process serves the folder, Unavailable for a port that is taken."""
        self._settings = settings or StorageSettings()
        self.drained = True
        with contextlib.ExitStack() as closing:
            clients = StorageClients(token)
            closing.callback(clients.close)
            self.node = closing.enter_context(LocalNode(name, data, clients.at, self._settings))
            metrics = node_metrics(self.node)
            self._server = StorageFlightServer(
                self.node,
                host=host,
                announced_host=announced_host or host,
                port=port,
                token=token,
                metrics=metrics,
                limits=flight_limits,
            )
            closing.callback(self._shut_down)
            self.address = self._server.address
            self.metrics = MetricsServer(
                metrics, host=host, port=metrics_port, token=token, limits=http_limits
            )
            closing.callback(self.metrics.close)
            self._body_url = ""
            if loads is not None:
                door = LoadDoor(
                    loads,
                    clients,
                    host=host,
                    token=token,
                    front_ends=endpoints,
                    ca=endpoints_ca,
                    limits=http_limits,
                )
                closing.callback(door.close)
                self._body_url = door.url
            client = HeartbeatClient(endpoints, token, ca=endpoints_ca)
            closing.callback(client.close)
            beats = Heartbeats(lambda beat: client.send(name, beat), self._beat)
            every_s = self._settings.heartbeat_every_s
            self._heartbeats = PeriodicTask("heartbeats", every_s, beats.run_once)
            closing.callback(self._heartbeats.stop)
            self._closing = closing.pop_all()

    def start(self) -> None:
        self.node.compactor.start()
        self.node.scrubber.start()
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
        folder = self.node.folder
        return Heartbeat(folder.node_id, self.address, folder.free_bytes(), self._body_url)


class Heartbeats:
    """An endpoint that does not answer is tried again with the next one: the lease is several of them
    long.
    """

    def __init__(self, send: Callable[[Heartbeat], HeartbeatAnswer], beat: Callable[[], Heartbeat]) -> None:
        self._send, self._beat = send, beat
        self.failure: str | None = None

    def run_once(self) -> None:
        try:
            self._send(self._beat())
        except RtolapError as error:
            if self.failure is None:
                log.warning("no front end knows that this node lives: %s", error)
            self.failure = str(error)
            return
        except Exception as error:  # of the program, or of the disk: a node that goes silent looks dead
            log.exception("no front end gets heartbeats of this node")
            self.failure = str(error)
            return
        if self.failure is not None:
            log.info("the front ends know that this node lives")
        self.failure = None


class HeartbeatClient:
    """Sends the heartbeats of a storage node to any front end. For one thread.

    Args:
        urls: base URLs of endpoints. The one that answered last is tried first.
        ca: the PEM file of trusted authorities; None for the system's.
    """

    def __init__(self, urls: Sequence[str], token: str, *, ca: Path | None = None) -> None:
        self._urls = list(urls)
        self._http = service_client(
            headers={"Authorization": f"Bearer {token}"}, timeout=_HEARTBEAT_TIMEOUT_S, verify=trust(ca)
        )

    def send(self, name: str, beat: Heartbeat) -> HeartbeatAnswer:
        """Send a heartbeat. Raises Unavailable when no endpoint answers; Refused for a name that is taken."""
        reasons = []
        for url in list(self._urls):
            try:
                answer = self._http.post(
                    f"{url}{API}/storage-nodes/{quote(name, safe='')}/heartbeat",
                    content=msgspec.json.encode(beat),
                )
                if answer.status_code == httpx.codes.OK:
                    self._urls.remove(url)
                    self._urls.insert(0, url)
                    return decode_json(answer.content, HeartbeatAnswer)
                raise _heartbeat_error(url, answer)
            except (httpx.TransportError, Unavailable) as error:
                reasons.append(f"{url}: {error}")
        raise Unavailable("no endpoint takes the heartbeat of a storage node", found="; ".join(reasons))

    def close(self) -> None:
        self._http.close()


def _heartbeat_error(url: str, answer: httpx.Response) -> RtolapError:
    try:
        payload = decode_json(answer.content, dict[str, object])
    except msgspec.MsgspecError:
        return Unavailable(f"endpoint {url} does not take heartbeats", found=f"HTTP {answer.status_code}")
    return from_dict(payload)


def node_metrics(node: LocalNode) -> Metrics:
    metrics = Metrics("storage")

    def sample() -> Iterable[Family]:
        status = node.status()
        figures = {
            "tablets": len(status.tablets),
            "tablets_broken": len(status.broken),
            "rows": sum(each.rows for each in status.tablets),
            "files": sum(each.files for each in status.tablets),
            "file_bytes": sum(each.bytes for each in status.tablets),
            "prepared": sum(len(each.prepared) for each in status.tablets),
            "loads_running": len(status.loading),
            "load_memory_bytes": status.load_memory_bytes,
            "disk_free_bytes": status.free_bytes,
            "loaded_rows": node.loaded_rows,
            "compactions": node.compactor.runs,
            "compaction_failures": node.compactor.failures,
            "verified_bytes": node.scrubber.verified_bytes,
        }
        return [metrics.value(name, figure) for name, figure in figures.items()]

    metrics.sampled(sample)
    return metrics
