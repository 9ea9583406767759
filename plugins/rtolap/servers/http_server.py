"""The server under every HTTP endpoint: uvicorn, whose connections are bounded and accepted here.

It accepts by itself, because uvicorn's listeners know no limit per address, count no connection that is still
in its TLS handshake, and wait a minute for that.

rtolap_<service>_http_connections                      open ones
rtolap_<service>_http_connections_ended_total{reason}
    slow_head, long_head, long_body, slow_reader       see `http_protocol`
    refused                                            all that are allowed were at work
    no_descriptors                                     the process had none left; accepting goes on
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import sys
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from rtolap.base.errors import Unavailable
from rtolap.base.metrics import Metrics
from rtolap.servers.http_protocol import BoundedProtocol
from rtolap.servers.limits import Connections, HttpLimits
from rtolap.servers.listening import BACKLOG, listening_sockets

log = logging.getLogger(__name__)

ACCEPT_AGAIN_S = 0.2
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class HttpConnections:
    """The connections of one service, over all its ports."""

    def __init__(self, metrics: Metrics, limits: HttpLimits) -> None:
        self.limits = limits
        self.open = Connections(
            total_max=limits.connections_max, per_address_max=limits.connections_per_address_max
        )
        self._ended = metrics.counter("http_connections_ended")
        metrics.sampled(lambda: [metrics.value("http_connections", len(self.open))])

    def note(self, reason: str) -> None:
        self._ended.labels(reason).inc()


class HttpServer(uvicorn.Server):
    """`host` and `port`, unless `serve` and `run` are given sockets. `tls`: of all its connections."""

    def __init__(
        self,
        app: Any,
        connections: HttpConnections,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        lifespan: str = "auto",
        graceful_s: int | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=BoundedProtocol,
            ws="none",
            lifespan=lifespan,  # type: ignore[arg-type]
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # who asks would choose the address that wrong passwords count for
            timeout_keep_alive=connections.limits.idle_s,
            timeout_graceful_shutdown=graceful_s,
        )
        super().__init__(config)
        self._connections = connections
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        try:
            listening = (
                sockets
                if sockets is not None
                else listening_sockets("HTTP", self.config.host, self.config.port)
            )
        except Unavailable as error:
            log.error("%s", error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.servers: list[Any] = [Listener(self, one) for one in listening]
        self.started = True

    async def connect(self, sock: socket.socket, address: str) -> None:
        """Serve one accepted connection; returns when it is set up."""
        connections, loop = self._connections, asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        place = connections.open.admit(address, task.cancel)
        if place is None:
            connections.note("refused")
            log.warning("a connection of %s was refused: as many as are allowed are at work", address)
            _refuse(sock, encrypted=self._tls is not None)
            return

        def protocol() -> asyncio.Protocol:
            return BoundedProtocol(
                self.config,
                self.server_state,
                self.lifespan.state,
                loop,
                limits=connections.limits,
                place=place,
                note=connections.note,
            )

        handshake_s = None if self._tls is None else connections.limits.head_timeout_s
        try:
            await loop.connect_accepted_socket(
                protocol, sock, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        except (OSError, asyncio.CancelledError) as error:  # TimeoutError and SSLError are OSErrors
            log.debug("a connection of %s was not set up: %r", address, error)
            place.leave()
            sock.close()

    def note_exhausted(self, error: OSError) -> None:
        self._connections.note("no_descriptors")
        log.warning("no connection can be accepted for the moment, and it goes on: %s", error)


class Listener:
    """A listening socket, until `close`."""

    def __init__(self, server: HttpServer, sock: socket.socket) -> None:
        sock.listen(BACKLOG)
        sock.setblocking(False)
        self.sockets = [sock]
        self._server = server
        self._connecting: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(sock))

    def close(self) -> None:
        self._accepting.cancel()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._accepting, *self._connecting})
        for sock in self.sockets:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._server.note_exhausted(error)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                elif error.errno == errno.EBADF:
                    return  # closed
                else:
                    log.debug("a connection broke before it was accepted: %s", error)
                    await asyncio.sleep(0)
                continue
            sock.setblocking(False)
            task = loop.create_task(self._server.connect(sock, str(address[0])))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)


def _refuse(sock: socket.socket, *, encrypted: bool) -> None:
    try:
        if not encrypted:
            sock.send(_FULL)
    except OSError as error:
        log.debug("a refused client was gone already: %s", error)
    sock.close()
