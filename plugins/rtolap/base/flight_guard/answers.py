"""The server's side of one connection: its frames pass as they come, with the guard's own between them."""

from __future__ import annotations

from rtolap.base.flight_guard import frames
from rtolap.base.flight_guard.calls import Calls


class Answers:
    """Follows the frames of one connection, and informs its `calls` how far their responses are."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._left_bytes = 0
        self._header = bytearray()
        self._in_head = False
        self.waiting = bytearray()

    def insert(self, own: bytes) -> None:
        """Frames of the guard's own, to be sent as soon as no other is half sent."""
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
        if kind == frames.HEADERS:
            self._calls.answer_begun(stream)
            self._in_head = not flags & frames.END_HEADERS
        elif kind == frames.CONTINUATION:
            self._in_head = not flags & frames.END_HEADERS
        if kind == frames.RST_STREAM or (kind in (frames.HEADERS, frames.DATA) and flags & frames.END_STREAM):
            self._calls.answer_ended(stream)
