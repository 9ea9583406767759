"""An HTTP connection with bounds: what uvicorn's protocol leaves open is closed here.

the head of a request      at most `head_bytes_max`, trailers and chunks' extensions too: 431; whole within
                           `head_timeout_s` of the connection's beginning or of its first byte: 408
a body that nobody reads   thrown away for at most `linger_s` after the answer
an answer                  PROGRESS_BYTES of it are taken within each `write_timeout_s`, or it is cut off
a client that goes away    the request that is worked on is notified, and those behind it are not begun
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rtolap.servers.limits import ConnectionPlace, HttpLimits

PROGRESS_BYTES = 16 << 10  # of an answer within `write_timeout_s`: who reads a byte at a time does not read


class HeadTooLong(Exception):
    """Raised out of the parser, which gives the request up."""


class BoundedProtocol(HttpToolsProtocol):
    """`note` is called with the reason why a connection was ended."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        *,
        limits: HttpLimits,
        place: ConnectionPlace,
        note: Callable[[str], None],
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self._limits = limits
        self._place = place
        self._note = note
        self._head_bytes = 0  # names and values of the message that comes
        self._loose_bytes = 0  # since a head was complete or a body went on
        self._in_body = False
        self._too_long = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._cycles: deque[RequestResponseCycle] = deque()  # of requests whose answers are not complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.close = transport.abort
        if not self._place.is_open:  # it has given way meanwhile
            transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in self._cycles:  # uvicorn tells the newest alone
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        self._place.leave()
        for timer in (self._head_timer, self._linger_timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._in_body and self._head_timer is None:
            self._await_head()
        self._loose_bytes += len(data)
        super().data_received(data)
        if self._loose_bytes > self._limits.head_bytes_max and not self.transport.is_closing():
            self._too_long = True
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        if self._too_long:
            self._end(431, "the head of the request is too long", "long_head")
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        if self._head_timer is None:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._loose_bytes = 0
        self._in_body = True
        self._place.busy()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()
        while self._cycles and self._cycles[0].response_complete:
            self._cycles.popleft()
        self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._loose_bytes = 0
        self._in_body = False
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:  # the rest was thrown away
            if self._linger_timer is not None:
                self._linger_timer.cancel()
                self._linger_timer = None
            self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_writing()
        if self.transport.is_closing():
            return
        if self._in_body:
            self._linger_timer = self.loop.call_later(self._limits.linger_s, self._cut, "long_body")
        elif self.cycle.response_complete:
            self._place.idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent_bytes = 0

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes_max:
            self._too_long = True
            raise HeadTooLong

    def _rest(self) -> None:
        """Wait for the next request: until the next head begins, which has as long as the first."""
        if not self.transport.is_closing():
            self._place.idle()
            self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self._head_timed_out)

    def _head_timed_out(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # it is not read while the one before is answered
        elif not self.transport.is_closing():
            self._end(408, "the head of the request did not come in time", "slow_head")

    def _watch_writing(self) -> None:
        """Watch an answer that does not go out at once, until all of it has."""
        if self._write_timer is None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(self._limits.write_timeout_s, self._look_at_writing)

    def _look_at_writing(self) -> None:
        """End a connection that has taken too little since the last look. `_unsent_bytes` is what was left
        then."""
        self._write_timer = None
        left_bytes = self.transport.get_write_buffer_size()
        if not left_bytes:
            return
        if self._unsent_bytes and left_bytes > self._unsent_bytes - PROGRESS_BYTES:
            self._cut("slow_reader")
        else:
            self._watch_writing()

    def _end(self, status: int, message: str, reason: str) -> None:
        self._note(reason)
        content = message.encode()
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(content)
            + content
        )
        self.transport.close()
        self._watch_writing()

    def _cut(self, reason: str) -> None:
        self._note(reason)
        self.transport.abort()
