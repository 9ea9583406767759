"""A client's connection and, once a call of it had the token, the one to the server that answers it."""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from rtolap.base.errors import RtolapError
from rtolap.servers.flight_guard import frames
from rtolap.servers.flight_guard.calls import BrokenConnection, Calls
from rtolap.servers.limits import ConnectionPlace

log = logging.getLogger(__name__)

PIECES_MAX = 64  # handed to the system at once; more, and small ones, are put together first
LINGER_BYTES_MAX = 1 << 20
OWN_BYTES_MAX = 1 << 20  # of the guard's own words to who does not read them
_NOTHING = memoryview(b"")


class _Answers:
    """The server's side, whose frames pass as they come, with the guard's own between them.

    Follows the frames of one connection, and informs its `calls` how far their responses are.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._left_bytes = 0
        self._header = bytearray()
        self._in_head = False
        self.waiting = bytearray()

    def insert(self, own: bytes) -> None:
        """Insert frames of the guard's own, which are sent as soon as no other is half sent."""
        self.waiting += own

    def feed(self, data: memoryview) -> list[bytes | memoryview]:
        """Return the bytes to send on to the client; `data` may be empty, where `insert` has left some."""
        boundary = 0 if self._at_boundary() else -1
        at, size = 0, len(data)
        while at < size:
            if self._left_bytes:
                step = min(self._left_bytes, size - at)
                self._left_bytes -= step
                at += step
            elif not self._header and size - at >= frames.HEADER_BYTES:
                self._begin(data, at)
                at += frames.HEADER_BYTES
            else:
                step = min(frames.HEADER_BYTES - len(self._header), size - at)
                self._header += data[at : at + step]
                at += step
                if len(self._header) == frames.HEADER_BYTES:
                    self._begin(self._header, 0)
                    self._header.clear()
            if not self._left_bytes and self._at_boundary():
                boundary = at
        if not self.waiting or boundary < 0:
            return [data]
        own, self.waiting = bytes(self.waiting), bytearray()
        return [data[:boundary], own, data[boundary:]]

    def _at_boundary(self) -> bool:
        return not self._left_bytes and not self._header and not self._in_head

    def _begin(self, data: bytearray | memoryview, at: int) -> None:
        self._left_bytes, kind, flags, stream = frames.parse_header(data, at)
        self._calls.answered(kind, flags)
        if kind == frames.HEADERS:
            self._calls.answer_begun(stream)
            self._in_head = not flags & frames.END_HEADERS
        elif kind == frames.CONTINUATION:
            self._in_head = not flags & frames.END_HEADERS
        if kind == frames.RST_STREAM or (kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM):
            self._calls.answer_ended(stream)


class Side:
    """A socket, without waiting: `unsent` is what it has not taken yet."""

    def __init__(self, sock: socket.socket, watcher: selectors.BaseSelector, ready: Callable[[int], None]):
        self.sock = sock
        self.unsent = b""
        self._watcher = watcher
        self._ready = ready
        self._watched = 0

    def send(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send pieces. Raises OSError when the connection is broken."""
        if self.unsent:
            self.unsent = b"".join([self.unsent, *pieces])
            return
        if len(pieces) > PIECES_MAX:
            pieces = [b"".join(pieces)]
        try:
            sent = self.sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < sum(map(len, pieces)):
            self.unsent = b"".join(pieces)[sent:]

    def send_unsent(self) -> None:
        rest, self.unsent = self.unsent, b""
        self.send([rest])

    def watch(self, reading: bool) -> None:
        wanted = (selectors.EVENT_READ if reading else 0) | (selectors.EVENT_WRITE if self.unsent else 0)
        if wanted == self._watched:
            return
        if not self._watched:
            self._watcher.register(self.sock, wanted, self._ready)
        elif not wanted:
            self._watcher.unregister(self.sock)
        else:
            self._watcher.modify(self.sock, wanted, self._ready)
        self._watched = wanted

    def close(self) -> None:
        if self._watched:
            self._watcher.unregister(self.sock)
            self._watched = 0
        self.sock.close()


class RelayParts(Protocol):
    """The parts of the relay that its connections need."""

    watcher: selectors.BaseSelector
    buffer: memoryview  # one for all, as they run one after the other

    def dial(self, connection: Connection) -> socket.socket:
        """Connect to the server. Raises OSError."""

    def note(self, reason: str) -> None: ...

    def note_refused(self, reason: str) -> None: ...

    def error_text(self, error: RtolapError) -> str: ...

    def authorized(self, connection: Connection) -> None: ...

    def stalled(self, connection: Connection, stalled: bool) -> None: ...

    def lingering(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Connection:
    def __init__(
        self, relay: RelayParts, sock: socket.socket, place: ConnectionPlace, calls: Calls, own: bytes
    ):
        """Send the client `own` first."""
        self.place = place
        self._relay = relay
        self._calls = calls
        self._answers = _Answers(calls)
        self._client = Side(sock, relay.watcher, self._on_client)
        self._server: Side | None = None
        self._early: list[bytes] = []
        self._linger_bytes = -1  # still thrown away before the end; -1: it goes on
        self._open = True
        self._client.send([own])
        self._client.watch(True)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._client.close()
        if self._server is not None:
            self._server.close()
        self.place.leave()
        self._relay.closed(self)

    def end(self, reason: str, code: int, text: str) -> None:
        """Send the client the reason, and end the connection when it has had time to read that."""
        self._relay.note(reason)
        self._guarded(lambda: self._tell_end(frames.goaway(self._calls.last_stream, code, text)))

    # -- events -----------------------------------------------------------------------------------------

    def _guarded(self, act: Callable[[], None]) -> None:
        """Run `act`. A failure closes this connection and affects no other."""
        if not self._open:
            return
        try:
            act()
            if self._open:
                self._watch()
        except OSError as error:
            log.debug("a connection of %s broke: %s", self.place.address, error)
            self.close()
        except Exception:
            log.exception("a connection of %s is given up", self.place.address)
            self.close()

    def _on_client(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._guarded(self._client.send_unsent)
        if events & selectors.EVENT_READ:
            self._guarded(self._read_client)

    def _on_server(self, events: int) -> None:
        if events & selectors.EVENT_WRITE and self._server is not None:
            self._guarded(self._server.send_unsent)
        if events & selectors.EVENT_READ:
            self._guarded(self._read_server)

    def _watch(self) -> None:
        if self._linger_bytes >= 0:
            self._client.watch(True)
            if not self._client.unsent and self._server is None:
                self._client.sock.shutdown(socket.SHUT_WR)
            return
        server = self._server
        self._client.watch((server is None or not server.unsent) and len(self._client.unsent) < OWN_BYTES_MAX)
        if server is not None:
            server.watch(not self._client.unsent)
        self._relay.stalled(self, bool(self._client.unsent))

    # -- from the client --------------------------------------------------------------------------------

    def _read_client(self) -> None:
        data = self._receive(self._client)
        if data is None:
            return
        if not data:
            self.close()
            return
        if self._linger_bytes >= 0:
            self._linger_bytes -= len(data)
            if self._linger_bytes < 0:
                self.close()
            return
        try:
            pieces = self._calls.feed(data)
        except BrokenConnection as broken:
            self._relay.note(broken.reason)
            self._answer_refused()
            self._tell_end(frames.goaway(self._calls.last_stream, broken.code, str(broken)))
            return
        if self._server is None:
            self._early += [bytes(piece) for piece in pieces]
            if not self._calls.authorized:
                self._answer_refused()
                return
            pieces, self._early = list(self._early), []
            if not self._connect():
                return
        assert self._server is not None
        self._server.send(pieces)
        self._answer_refused()

    def _connect(self) -> bool:
        try:
            sock = self._relay.dial(self)
        except OSError as error:
            log.warning("the Flight server itself cannot be reached: %s", error)
            self._relay.note("no_server")
            self._tell_end(frames.goaway(0, frames.NO_ERROR, "the server cannot be reached for the moment"))
            return False
        self._server = Side(sock, self._relay.watcher, self._on_server)
        self.place.busy()
        self._relay.authorized(self)
        return True

    def _answer_refused(self) -> None:
        calls = self._calls
        for refusal in calls.refusals:
            self._relay.note_refused(refusal.reason)
            text = self._relay.error_text(refusal.error)
            self._answers.insert(frames.answer(refusal.stream, refusal.status, text, begun=refusal.begun))
        calls.refusals.clear()
        if calls.thrown_away_bytes:
            self._answers.insert(frames.window_update(calls.thrown_away_bytes))
            calls.thrown_away_bytes = 0
        if self._answers.waiting:
            self._client.send(self._answers.feed(_NOTHING))

    def _tell_end(self, last_words: bytes) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._answers.insert(last_words)
        self._client.send(self._answers.feed(_NOTHING))
        self._linger()

    def _linger(self) -> None:
        """Read until the client has ended. A connection that ends with unread bytes discards what the client
        has not read yet."""
        self._linger_bytes = LINGER_BYTES_MAX
        self._relay.lingering(self)

    # -- from the server --------------------------------------------------------------------------------

    def _read_server(self) -> None:
        if self._server is None or self._client.unsent:
            return
        data = self._receive(self._server)
        if data is None:
            return
        if not data:
            self._server.close()
            self._server = None
            self._linger()
            return
        self._client.send(self._answers.feed(data))

    def _receive(self, side: Side) -> memoryview | None:
        """Return what has come: empty where the peer has ended, None where there is nothing after all."""
        try:
            size = side.sock.recv_into(self._relay.buffer)
        except (BlockingIOError, InterruptedError):
            return None
        return self._relay.buffer[:size]
