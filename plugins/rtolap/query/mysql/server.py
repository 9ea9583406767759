"""Connections of the MySQL server have one thread each, are bounded in number, and have a bounded time to log
in.

Those that are still logging in are counted apart. There the one that has been at it for longest gives way to
a new one: a silent client keeps no other out, however often it connects.
"""

from __future__ import annotations

import functools
import logging
import socket
import threading
from dataclasses import dataclass

from rtolap.base.errors import (
    QueryError,
    Refused,
    RtolapError,
    TooManyAtOnce,
    Unauthorized,
    Unavailable,
    UnknownConnection,
)
from rtolap.base.users import Users
from rtolap.query.memory_budget import Account
from rtolap.query.mysql.answers import error_packet
from rtolap.query.mysql.client_watch import ClientWatch
from rtolap.query.mysql.connection import MySqlConnection
from rtolap.query.mysql.handshake import Login, Tls, Verify, log_in
from rtolap.query.mysql.packets import ConnectionClosed, PacketStream, ReaderTooSlow
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.executor import Executor
from rtolap.query.statements.sql_session import SqlSession
from rtolap.servers.http_server import ACCEPT_AGAIN_S, EXHAUSTED
from rtolap.servers.limits import ConnectionPlace, Connections
from rtolap.servers.listening import listening_sockets

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MySqlLimits:
    """The limits of a MySQL server.

    Attributes:
        connections_max: connections that are logged in.
        login_timeout_s: time for the whole login.
        idle_timeout_s: time without a statement after which a connection is ended.
        stop_timeout_s: time that a stopping server waits for each of its threads.
        write_timeout_s: time in which a client has to take 64 KiB of an answer.
        connections_per_user_max: how many of `connections_max` one user may have; None: three quarters.
        logins_max: connections that are logging in.
        logins_per_address_max: how many of `logins_max` may come from one address.
    """

    connections_max: int = 200
    login_timeout_s: float = 10.0
    idle_timeout_s: float = 28_800.0
    stop_timeout_s: float = 5.0
    write_timeout_s: float = 60.0
    connections_per_user_max: int | None = None
    logins_max: int = 200
    logins_per_address_max: int = 100

    @property
    def per_user(self) -> int:
        return self.connections_per_user_max or self.connections_max - self.connections_max // 4


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
        self._executor = Executor(service, users, self)
        self._lock = threading.Lock()
        self._open: dict[int, tuple[MySqlConnection | None, PacketStream, threading.Thread]] = {}
        self._next_id = 1
        self._logins = Connections(total_max=limits.logins_max, per_address_max=limits.logins_per_address_max)
        self._watch = ClientWatch()
        self._closing = threading.Event()
        self._listeners: list[socket.socket] = []
        self._acceptors: list[threading.Thread] = []

    @property
    def port(self) -> int:
        assert self._listeners, "start first"
        return int(self._listeners[0].getsockname()[1])

    def start(self) -> None:
        """Raises Unavailable for a port that is taken."""
        self._listeners = listening_sockets("MySQL", *self._address)
        for listener in self._listeners:
            acceptor = threading.Thread(
                target=self._accept, args=(listener,), name="mysql-accept", daemon=True
            )
            self._acceptors.append(acceptor)
            acceptor.start()

    def close(self) -> None:
        self._closing.set()
        for listener in self._listeners:
            PacketStream(listener).shut()
        with self._lock:
            open_now = list(self._open.values())
        for connection, stream, _ in open_now:
            if connection is not None:
                connection.interrupt("the server stops")
            stream.shut()
        for _, _, thread in open_now:
            thread.join(self._limits.stop_timeout_s)
        for acceptor in self._acceptors:
            acceptor.join(self._limits.stop_timeout_s)
        for listener in self._listeners:
            listener.close()
        self._watch.close()

    def kill(self, connection_id: int, user: str, *, connection: bool) -> None:
        """Interrupt a query, or end a connection, of the same user. Raises QueryError if there is none."""
        with self._lock:
            owner, stream, _ = self._open.get(connection_id, (None, None, None))
        if owner is None or stream is None or owner.session.user != user:
            raise UnknownConnection(
                f"unknown connection {connection_id}", action="SHOW PROCESSLIST lists your own"
            )
        owner.interrupt(f"killed by {user}")
        if connection:
            stream.shut()

    def connections(self) -> int:
        """Return the number of open connections, including those that are logging in."""
        with self._lock:
            return len(self._open)

    def sessions(self) -> list[SqlSession]:
        """Return the sessions of connections that are logged in."""
        with self._lock:
            return [connection.session for connection, _, _ in self._open.values() if connection is not None]

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                sock, address = listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                if error.errno in EXHAUSTED:
                    self._service.metrics.logins.labels("no_descriptors").inc()
                log.warning("no MySQL connection can be accepted for the moment, and it goes on: %s", error)
                self._closing.wait(ACCEPT_AGAIN_S)
                continue
            self._begin(sock, str(address[0]))

    def _begin(self, sock: socket.socket, host: str) -> None:
        """Start a thread that lets the client log in."""
        stream = PacketStream(sock)
        place = self._logins.admit(host, stream.shut)
        if place is None:
            stream.close()
            return
        with self._lock:
            identity, self._next_id = self._next_id, self._next_id + 1
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.limit_time(self._limits.login_timeout_s)
            with self._lock:
                thread = threading.Thread(
                    target=self._serve,
                    args=(stream, identity, host, place),
                    name=f"mysql-{identity}",
                    daemon=True,
                )
                self._open[identity] = (None, stream, thread)
            thread.start()
        except (OSError, RuntimeError) as error:  # it is gone again; no thread can be started
            log.warning("a MySQL connection was dropped: %s", error)
            with self._lock:
                self._open.pop(identity, None)
            place.leave()
            stream.close()

    def _enter(self, identity: int, connection: MySqlConnection, stream: PacketStream) -> None:
        """Enter a connection. Raises Unavailable where the limit of logins is reached."""
        limits, user = self._limits, connection.session.user
        with self._lock:
            inside = [each.session.user for each, _, _ in self._open.values() if each is not None]
            if len(inside) < limits.connections_max and inside.count(user) < limits.per_user:
                self._open[identity] = (connection, stream, self._open[identity][2])
                return
        self._service.metrics.logins.labels("full").inc()
        log.warning("a connection of %s was refused: %d are open", user, len(inside))
        raise TooManyAtOnce(
            "too many connections",
            expected=f"at most {limits.connections_max}, {limits.per_user} of one user",
            found=f"{len(inside)}, {inside.count(user)} of {user}",
            action="close one, or start the service with a larger --connections-max",
        )

    def _serve(self, stream: PacketStream, identity: int, host: str, place: ConnectionPlace) -> None:
        verify = functools.partial(self._verify, host)
        account: Account | None = None
        try:
            login = self._log_in(stream, identity, verify)
            account = self._service.budget.account(login.user)
            session = SqlSession(
                identity,
                login.user,
                host,
                account=account,
                tls_cipher=stream.tls_cipher,
                facts=self.facts(),
                databases=self._service.databases,
                tokens=self._service.session_tokens,
            )
            if login.database:
                session.use(login.database)
            connection = MySqlConnection(
                *(stream, login.capabilities, session, self._service, self._executor, verify, self._watch),
                account,
            )
            place.leave()
            self._enter(identity, connection, stream)
            self._service.metrics.logins.labels("ok").inc()
            stream.write(b"\0\0\0\2\0\0\0")
            stream.flush()
            stream.limit_silence(self._limits.idle_timeout_s, self._limits.write_timeout_s)
            connection.run()
        except (Unauthorized, Unavailable, QueryError, Refused) as error:
            self._say(stream, error)
            log.info("connection %d from %s ended: %s", identity, host, error.message)
        except ReaderTooSlow as error:
            self._service.metrics.slow_readers.inc()
            log.warning("connection %d from %s was cut off: %s", identity, host, error)
        except ConnectionClosed as error:
            log.debug("connection %d from %s closed: %s", identity, host, error)
        except Exception:
            log.exception("connection %d from %s failed", identity, host)
            raise
        finally:
            place.leave()
            with self._lock:
                self._open.pop(identity, None)
            stream.close()
            if account is not None:
                account.close()

    def _log_in(self, stream: PacketStream, identity: int, verify: Verify) -> Login:
        try:
            return log_in(stream, identity, verify, self._tls)
        except BaseException:
            self._service.metrics.logins.labels("refused").inc()
            raise

    def _verify(self, host: str, user: str, scramble: bytes, nonce: bytes) -> None:
        verify = functools.partial(self._users.verify_scramble, user, scramble, nonce)
        attempt = self._users.delays.attempt(user, host, verify)
        while wait_s := attempt.advance():
            if self._closing.wait(wait_s):
                raise Unavailable("the server stops")

    def facts(self) -> dict[str, str | int]:
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
