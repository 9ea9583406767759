"""A Flight client that sends whatever frames a test wants, on one connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import unquote

from hpack import Decoder, Encoder
from rtolap.servers.flight_guard import frames

from tests.support.waiting import patience_s

DEADLINE_S = patience_s(60.0)
SERVICE = "/arrow.flight.protocol.FlightService/"
_SMALL_PIECES = 64 << 10


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class RawFlight:
    """`send` returns False where the server has ended the connection."""

    def __init__(self, port: int, token: str) -> None:
        self.token = token
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.encoder = Encoder()
        self._decoder = Decoder()
        self._came = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def send(self, data: bytes) -> bool:
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def frames(self) -> list[Frame]:
        """Return all that comes until the server ends the connection. Raises TimeoutError where it does
        not."""
        deadline_s = time.monotonic() + patience_s(DEADLINE_S)
        found: list[Frame] = []
        while (one := self.next_frame()) is not None:
            found.append(one)
            if time.monotonic() > deadline_s:
                raise TimeoutError
        return found

    def next_frame(self) -> Frame | None:
        """Return the next frame, None at the connection's end."""
        while True:
            if len(self._came) >= frames.HEADER_BYTES:
                size, kind, flags, stream = frames.parse_header(self._came)
                end = frames.HEADER_BYTES + size
                if len(self._came) >= end:
                    payload = bytes(self._came[frames.HEADER_BYTES : end])
                    del self._came[:end]
                    return Frame(kind, flags, stream, payload)
            with contextlib.suppress(ConnectionError):
                data = self.sock.recv(_SMALL_PIECES)
                if data:
                    self._came += data
                    continue
            return None

    def status(self, stream: int) -> tuple[str, str]:
        """Return gRPC's status of a call and its text, when it has ended."""
        while (one := self.next_frame()) is not None:
            if one.kind != frames.HEADERS:
                continue
            fields = {
                bytes(name).decode(): bytes(value).decode()
                for name, value in self._decoder.decode(one.payload, raw=True)
            }
            if one.stream == stream and one.flags & frames.END_STREAM:
                return fields["grpc-status"], unquote(fields.get("grpc-message", ""))
        raise ConnectionError("the connection has ended before the call")

    # -- what is sent -----------------------------------------------------------------------------------

    def begin(self) -> bool:
        return self.send(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0))

    def block(self, method: str, token: str | None, more: list[tuple[str, str]] | None = None) -> bytes:
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SERVICE + method),
            (":authority", "a"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        if token is not None:
            fields.append(("authorization", f"Bearer {token}"))
        return self.encoder.encode(fields + (more or []), huffman=False)

    def head(self, stream: int, method: str = "DoGet", token: str | None = "") -> bytes:
        """Return the head of a call, with the right token unless another is given; None means no token."""
        block = self.block(method, self.token if token == "" else token)
        return frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)

    def message(self, stream: int, body: bytes, *, compressed: int = 0, end: bool = True) -> bytes:
        flags = frames.END_STREAM if end else 0
        return frames.frame(frames.DATA, flags, stream, struct.pack(">BI", compressed, len(body)) + body)


def ticket(name: bytes) -> bytes:
    """Return a Ticket, as protobuf writes it; shorter than 128 bytes."""
    return b"\x0a" + bytes([len(name)]) + name
