"""The process of a front end: its two ports, from start to end.

On the way out: 1. no new requests, those under way are answered (at most `GRACEFUL_S`), 2. the periodic tasks
end, 3. the lease is given up, so that the next front end is master at once. An endpoint that is killed
instead is replaced when its lease runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Iterator, Mapping

from rtolap.base.addresses import host_port
from rtolap.base.errors import ProcessFailed
from rtolap.base.settings import Settings
from rtolap.base.tls import trust
from rtolap.base.users import Users
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.rest.request import headers
from rtolap.protocols.storage.client import StorageClients
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.listening import listening_sockets
from rtolap.stored.frontend.assembly import Assembly, FrontendOptions, Storage
from rtolap.stored.frontend.election import Endpoint
from rtolap.stored.frontend.http.nodes import nodes_router
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.frontend.transactions.remote_participants import RemoteParticipants, RemoteTabletHosts
from rtolap.stored.metastore import nodes as node_rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.ports import Port, tls_of_loads
from rtolap.stored.stream_load.table_entry import TableEntry
from rtolap.stored.stream_load.writer import LoadWriter

log = logging.getLogger(__name__)

GRACEFUL_S = 5


def here(settings: Settings) -> Endpoint:
    """Return the address at which others reach this process. Its lease names the same one."""
    scheme = "http" if settings.stream_load_tls_certificate is None else "https"
    return Endpoint(
        f"{scheme}://{host_port(settings.reached_at(), settings.stream_load_port)}",
        f"{scheme}://{host_port(settings.reached_at(), settings.stream_load_body_port)}",
    )


def run(settings: Settings, options: FrontendOptions) -> None:
    """Serve until SIGTERM or SIGINT; call it from the main thread.

    Raises DefinitionError for settings, Unavailable for ports and the ledger, ProcessFailed when one of its
    threads has ended by an error of the program.
    """
    users, token = Users.load(settings.users_file), settings.token()
    tls = tls_of_loads(settings)
    endpoint = here(settings)
    with contextlib.ExitStack() as closing:
        listeners = [
            [closing.enter_context(sock) for sock in listening_sockets(what, settings.host, port)]
            for what, port in (
                ("Stream Load", settings.stream_load_port),
                ("bodies of Stream Load", settings.stream_load_body_port),
            )
        ]
        ledger = closing.enter_context(
            Ledger.open(settings.ledger, password_file=settings.ledger_password_file)
        )
        clients = StorageClients(token)
        closing.callback(clients.close)
        nodes = closing.enter_context(StorageNodes(ledger, clients))
        guard = Guard(users, token)
        serving = _Serving(tls)
        assembly = Assembly(
            ledger,
            endpoint,
            _storage(ledger, nodes),
            guard,
            settings.data_dir / "stream-load" / "errors",
            options,
            masters=closing.enter_context(
                service_client(headers=headers(token), verify=trust(settings.stream_load_ca))
            ),
            own_routes=(nodes_router(nodes, guard.token),),
            broken=serving.end,
        )
        assembly.start()
        closing.callback(assembly.stop)
        serving.run(assembly, listeners)


def _storage(ledger: Ledger, nodes: StorageNodes) -> Storage:
    def open_writer(txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        return LoadWriter(nodes, txn_id, table.table_id, table.schema, table.replicas, partial=partial)

    def addresses(connection: Connection) -> Mapping[str, str]:
        alive = node_rows.alive(connection, ledger.now_ms(connection))
        return {node.name: node.address for node in alive}

    participants = RemoteParticipants(ledger, nodes)

    def body_urls() -> tuple[str, ...]:
        return tuple(node.body_url for node in nodes.callable_nodes() if node.body_url)

    return Storage(
        participants,
        RemoteTabletHosts(nodes),
        open_writer,
        nodes.open,
        addresses,
        nodes.lately,
        nodes.alive,
        participants.sizes,
        body_urls,
        participants.tablets,
        participants.reports,
    )


class _Serving:
    """Both ports on one event loop, until a signal or `end`."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._servers: list[_Server] = []
        self._reason: str | None = None

    def end(self, reason: str) -> None:
        """Stop serving because of an error. It may be called from any thread."""
        self._reason = reason
        self._stop()

    def run(self, assembly: Assembly, listeners: list[list[socket.socket]]) -> None:
        asyncio.run(self._serve(assembly, listeners))
        if self._reason is not None:
            raise ProcessFailed("the front end has ended", found=f"an error in its thread for {self._reason}")

    async def _serve(self, assembly: Assembly, listeners: list[list[socket.socket]]) -> None:
        ports = (Port(assembly.app, takes_bodies=False), Port(assembly.app, takes_bodies=True))
        connections = HttpConnections(assembly.metrics, assembly.http_limits)
        self._servers = [
            _Server(port, connections, tls=self._tls, lifespan="off", graceful_s=GRACEFUL_S) for port in ports
        ]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if self._reason is not None:
            self._stop()
        await asyncio.gather(
            *(server.serve(sockets=sockets) for server, sockets in zip(self._servers, listeners, strict=True))
        )

    def _stop(self) -> None:
        for server in self._servers:
            server.should_exit = True


class _Server(HttpServer):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the loop, which handles them for both servers."""
        yield
