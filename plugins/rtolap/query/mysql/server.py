"""Accepts connections: one thread each, at most so many, each with a bounded time to log in."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass

from rtolap.base.errors import QueryError, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.base.users import Users
from rtolap.query.mysql.answers import error_packet
from rtolap.query.mysql.connection import Connection
from rtolap.query.mysql.handshake import Login, Tls, log_in
from rtolap.query.mysql.packets import ConnectionClosed, PacketStream
from rtolap.query.mysql.show import Shows
from rtolap.query.mysql.variables import Session
from rtolap.query.service import QueryService

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MySqlLimits:
    """`connections_max` counts those that are still logging in. `login_timeout_s` is for the whole login."""

    connections_max: int = 200
    login_timeout_s: float = 10.0
    idle_timeout_s: float = 28_800.0
    stop_timeout_s: float = 5.0


class MySqlServer:
    """`start` binds (port 0 picks one) and returns; `close` ends every connection."""

    def __init__(
        self,
        service: QueryService,
        users: Users,
        *,
        host: str,
        port: int,
        tls: Tls | None = None,
        limits: MySqlLimits = MySqlLimits(),
    ) -> None:
        self._service = service
        self._users = users
        self._address = (host, port)
        self._tls = tls
        self._limits = limits
        self._shows = Shows(service, self._sessions)
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Connection | None, PacketStream, threading.Thread]] = {}
        self._next_id = 1
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None

    @property
    def port(self) -> int:
        assert self._listener is not None, "start first"
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        self._listener = socket.create_server(self._address, backlog=128)
        self._acceptor = threading.Thread(target=self._accept, name="mysql-accept", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        if self._listener is not None:
            PacketStream(self._listener).shut()
        with self._lock:
            open_now = list(self._open.values())
        for connection, stream, _ in open_now:
            if connection is not None:
                connection.interrupt("the server stops")
            stream.shut()
        for _, _, thread in open_now:
            thread.join(self._limits.stop_timeout_s)
        if self._acceptor is not None:
            self._acceptor.join(self._limits.stop_timeout_s)

    def kill(self, connection_id: int, user: str, *, connection: bool) -> None:
        """Interrupt a query, or end a connection, of the same user. Raises QueryError if there is none."""
        with self._lock:
            found, stream, _ = self._open.get(connection_id, (None, None, None))
        if found is None or stream is None or found.session.user != user:
            raise QueryError(f"unknown connection {connection_id}", action="SHOW PROCESSLIST lists your own")
        found.interrupt(f"killed by {user}")
        if connection:
            stream.shut()

    def connections(self) -> int:
        """How many are open, those that are still logging in among them."""
        with self._lock:
            return len(self._open)

    def _sessions(self) -> list[Session]:
        with self._lock:
            return [connection.session for connection, _, _ in self._open.values() if connection is not None]

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return  # closed
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = PacketStream(sock)
            stream.limit_time(self._limits.login_timeout_s)
            with self._lock:
                identity, self._next_id = self._next_id, self._next_id + 1
                full = len(self._open) >= self._limits.connections_max
                thread = threading.Thread(
                    target=self._serve,
                    args=(stream, identity, str(address[0])),
                    name=f"mysql-{identity}",
                    daemon=True,
                )
                if not full:
                    self._open[identity] = (None, stream, thread)
            if full:
                self._service.metrics.logins.labels("full").inc()
                self._refuse(stream)
            else:
                thread.start()

    def _refuse(self, stream: PacketStream) -> None:
        stream.sock.settimeout(self._limits.login_timeout_s)
        self._say(
            stream,
            Unavailable(
                "too many connections",
                expected=f"at most {self._limits.connections_max}",
                action="close one, or start the service with a larger --connections-max",
            ),
        )
        log.warning("a connection was refused: %d are open", self._limits.connections_max)
        stream.shut()

    def _serve(self, stream: PacketStream, identity: int, host: str) -> None:
        try:
            login = self._log_in(stream, identity)
            session = Session(
                identity,
                login.user,
                host,
                tls_cipher=stream.tls_cipher,
                facts=self._facts(),
                databases=lambda: self._service.catalogue().databases(),
            )
            if login.database:
                session.use(login.database)
            connection = Connection(
                stream, login.capabilities, session, self._service, self._shows, self._users, self
            )
            with self._lock:
                self._open[identity] = (connection, stream, self._open[identity][2])
            stream.write(b"\0\0\0\2\0\0\0")
            stream.flush()
            stream.limit_silence(self._limits.idle_timeout_s)
            connection.run()
        except (Unauthorized, QueryError, Refused) as error:
            self._say(stream, error)
            log.info("connection %d from %s ended: %s", identity, host, error.message)
        except ConnectionClosed as error:
            log.debug("connection %d from %s closed: %s", identity, host, error)
        except Exception:
            log.exception("connection %d from %s failed", identity, host)
            raise
        finally:
            with self._lock:
                self._open.pop(identity, None)
            stream.shut()

    def _log_in(self, stream: PacketStream, identity: int) -> Login:
        outcome = "refused"
        try:
            login = log_in(stream, identity, self._users, self._tls)
            outcome = "ok"
            return login
        finally:
            self._service.metrics.logins.labels(outcome).inc()

    def _facts(self) -> dict[str, str | int]:
        return {
            "have_ssl": "DISABLED" if self._tls is None else "YES",
            "port": self.port,
            "max_connections": self._limits.connections_max,
            "require_secure_transport": "ON" if self._tls is not None and self._tls.required else "OFF",
        }

    def _say(self, stream: PacketStream, error: RtolapError) -> None:
        try:
            stream.write(error_packet(error))
            stream.flush()
        except ConnectionClosed:
            log.debug("a client left before it heard of its error")
