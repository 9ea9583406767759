"""The port of a Flight server, guarded: credentials, sizes and connections, before gRPC reads a byte.

gRPC reads a call's first message before the server is asked whether it wants it, and Arrow sets no bound to
that message. So the server itself listens on a Unix socket in a folder of this user alone, and this relay
has the port. It hands on what a client sends when it has seen the token in the head of a call, message by
message within bounds (`calls`), and the answers as they come (`connection`).

rtolap_<service>_flight_connections                      open ones
rtolap_<service>_flight_connections_ended_total{reason}
    unauthorized, slow_head, long_head, protocol         before a call with the token, or instead of one
    restless                                             pings, settings, cancelled and refused calls
    slow_reader                                          nothing of an answer was taken
    refused                                              as many as are allowed were at work
    no_descriptors                                       the process had none left; accepting goes on
    no_server                                            the server behind took no connection
rtolap_<service>_flight_calls_refused_total{reason}      unauthorized, too_large, compressed; and
    session_offered                                      a client has begun a session, which is no fault
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice

from rtolap.base.closeable import Closeable
from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ServerSessions
from rtolap.servers.flight_guard import frames
from rtolap.servers.flight_guard.calls import Calls
from rtolap.servers.flight_guard.connection import Connection
from rtolap.servers.http_server import ACCEPT_AGAIN_S, EXHAUSTED
from rtolap.servers.limits import Connections, FlightLimits
from rtolap.servers.listening import BACKLOG

log = logging.getLogger(__name__)

BUFFER_BYTES = 256 << 10
ACCEPT_MAX = 32  # connections in a row, before the open ones have their turn
FREED = 8  # descriptors at a time: a call takes three
WARN_AGAIN_S = 1.0
LINGER_S = 2.0
CLOSE_S = 2.0  # time to pass on the rest of an answer when the server has ended
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class FlightRelay(Closeable):
    """Relays from its making until `close`, in a thread of its own. `listening`: sockets that are bound;
    they are closed with it. `backend`: path of the server's Unix socket."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        backend: str,
        *,
        token: str,
        limits: FlightLimits,
        metrics: Metrics,
        error_text: Callable[[RtolapError], str],
        sessions: ServerSessions | None = None,
    ) -> None:
        self.watcher: selectors.BaseSelector = selectors.DefaultSelector()
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self.error_text = error_text
        self._listening = list(listening)
        self._backend = backend
        self._token = token
        self._sessions = sessions
        self._limits = limits
        self._own_settings = frames.settings(limits.calls_max)
        self._places = Connections(
            total_max=limits.connections_max, per_address_max=limits.connections_per_address_max
        )
        self._ended = metrics.counter("flight_connections_ended")
        self._refused = metrics.counter("flight_calls_refused")
        metrics.sampled(lambda: [metrics.value("flight_connections", len(self._places))])
        # Each holds connections in the order of their deadlines, as all of one kind have equally long.
        self._early: dict[Connection, float] = {}
        self._lingering: dict[Connection, float] = {}
        self._stalled: dict[Connection, float] = {}
        self._open: set[Connection] = set()
        self._accepting = False
        self._accept_again_s = 0.0
        self._warn_again_s = 0.0
        self._take_no_more = threading.Event()
        self._closing = threading.Event()
        self._wake_from, self._wake_to = socket.socketpair()
        self._wake_from.setblocking(False)
        self._wake_to.setblocking(False)
        self.watcher.register(self._wake_from, selectors.EVENT_READ, self._on_wake)
        for sock in self._listening:
            sock.listen(BACKLOG)
            sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="flight-relay", daemon=True)
        self._thread.start()

    def stop_accepting(self) -> None:
        """Take no new connection; those that are open go on. From any thread."""
        self._take_no_more.set()
        self._wake()

    def close(self) -> None:
        """Hand on what the server, which has ended, has sent, and end. From any other thread."""
        self._take_no_more.set()
        self._closing.set()
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_to.send(b"\0")

    # -- what connections ask for (`connection.Surroundings`) ---------------------------------------------

    def dial(self, connection: Connection) -> socket.socket:
        try:
            return self._dial()
        except OSError as error:
            if error.errno in EXHAUSTED and self._free_descriptors(error, connection):
                return self._dial()
            raise

    def _dial(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(self._backend)
        except OSError:
            sock.close()
            raise
        return sock

    def note(self, reason: str) -> None:
        self._ended.labels(reason).inc()

    def note_refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def authorized(self, connection: Connection) -> None:
        self._early.pop(connection, None)

    def stalled(self, connection: Connection, stalled: bool) -> None:
        if not stalled:
            self._stalled.pop(connection, None)
        elif connection not in self._stalled:
            self._stalled[connection] = time.monotonic() + self._limits.write_timeout_s

    def lingering(self, connection: Connection) -> None:
        self._early.pop(connection, None)
        self._stalled.pop(connection, None)
        self._lingering.setdefault(connection, time.monotonic() + LINGER_S)

    def closed(self, connection: Connection) -> None:
        self._early.pop(connection, None)
        self._stalled.pop(connection, None)
        self._lingering.pop(connection, None)
        self._open.discard(connection)

    # -- the loop -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        close_by_s: float | None = None
        while True:
            now_s = time.monotonic()
            if self._closing.is_set():
                close_by_s = close_by_s or now_s + CLOSE_S
                for connection in list(self._early):
                    connection.close()
                if now_s >= close_by_s or not self._open:
                    break
            try:
                self._expire(now_s)
                self._watch_listening(now_s)
                for key, events in self.watcher.select(self._wait_s(now_s, close_by_s)):
                    key.data(events)
            except Exception:
                log.exception("the Flight relay goes on")
                time.sleep(ACCEPT_AGAIN_S)
        for connection in list(self._open):
            connection.close()
        self.watcher.close()
        self._wake_from.close()
        self._wake_to.close()

    def _wait_s(self, now_s: float, close_by_s: float | None) -> float | None:
        """Return the seconds until the next deadline."""
        kinds = (self._early, self._lingering, self._stalled)
        ends_s = [next(iter(kind.values())) for kind in kinds if kind]
        if close_by_s is not None:
            ends_s.append(close_by_s)
        if not self._accepting and self._listening:
            ends_s.append(self._accept_again_s)
        return max(0.0, min(ends_s) - now_s) if ends_s else None

    def _expire(self, now_s: float) -> None:
        for connection in _due(self._early, now_s):
            del self._early[connection]
            connection.end("slow_head", frames.NO_ERROR, "no call came in time")
        for connection in _due(self._stalled, now_s):
            self.note("slow_reader")
            connection.close()
        for connection in _due(self._lingering, now_s):
            connection.close()

    def _on_wake(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_from.recv(1024)

    # -- accepting ----------------------------------------------------------------------------------------

    def _watch_listening(self, now_s: float) -> None:
        if self._take_no_more.is_set():
            for sock in self._listening:
                if self._accepting:
                    self.watcher.unregister(sock)
                sock.close()
            self._listening, self._accepting = [], False
        elif not self._accepting and now_s >= self._accept_again_s:
            for sock in self._listening:
                self.watcher.register(sock, selectors.EVENT_READ, lambda _, sock=sock: self._accept(sock))
            self._accepting = True

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    if not self._free_descriptors(error):
                        self._pause_accepting()
                    return
                log.debug("a connection broke before it was accepted: %s", error)
                continue
            try:
                self._admit(sock, str(address[0]))
            except OSError as error:
                log.debug("a connection of %s broke at once: %s", address[0], error)
                sock.close()

    def _free_descriptors(self, error: OSError, but: Connection | None = None) -> bool:
        """End those that have waited for longest without a call; False where there is none."""
        self.note("no_descriptors")
        now_s = time.monotonic()
        if now_s >= self._warn_again_s:
            self._warn_again_s = now_s + WARN_AGAIN_S
            log.warning("Flight connections find no descriptor for the moment, and it goes on: %s", error)
        longest = [each for each in islice(self._early, FREED + 1) if each is not but][:FREED]
        for connection in longest:
            connection.close()
        return bool(longest)

    def _pause_accepting(self) -> None:
        if self._accepting:
            for sock in self._listening:
                self.watcher.unregister(sock)
        self._accepting = False
        self._accept_again_s = time.monotonic() + ACCEPT_AGAIN_S

    def _admit(self, sock: socket.socket, address: str) -> None:
        place = self._places.admit(address, sock.close)
        if place is None:
            self.note("refused")
            log.warning("a Flight connection of %s was refused: as many as are allowed are at work", address)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                if hasattr(socket, option):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            calls = Calls(self._token, self._limits, time.monotonic, self._sessions)
            connection = Connection(self, sock, place, calls, self._own_settings)
        except OSError:
            place.leave()
            raise
        place.close = connection.close
        self._open.add(connection)
        self._early[connection] = time.monotonic() + self._limits.head_timeout_s


def _due(deadlines: dict[Connection, float], now_s: float) -> list[Connection]:
    due = []
    for connection, deadline_s in deadlines.items():
        if deadline_s > now_s:
            break
        due.append(connection)
    return due
