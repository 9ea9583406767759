"""Frames of HTTP/2 (RFC 9113) and what gRPC puts into them, as far as the guard reads and writes them.

    offset  bytes
    0       3      length of the payload
    3       1      type
    4       1      flags
    5       4      stream, 0 for the connection; the highest bit is reserved

A message of gRPC, in the DATA frames of a stream: a byte that says whether it is compressed, 4 bytes of
length, the message; messages and frames begin and end independently of each other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from hpack import Encoder, NeverIndexedHeaderTuple

from rtolap.base.errors import Refused, RtolapError, TooLarge

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
MESSAGE_PREFIX_BYTES = 5
CONTROL_BYTES_MAX = (
    16 << 10
)  # a payload that is not DATA: what every peer has to take, and nobody has to more

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

NO_ERROR, PROTOCOL_ERROR = 0x0, 0x1
FRAME_SIZE_ERROR = 0x6
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

MAX_CONCURRENT_STREAMS = 0x3

RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 8, 12, 14, 16  # of gRPC

_HEADER = struct.Struct(">HBBBI")
_UNSIGNED = struct.Struct(">I")


def parse_header(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[int, int, int, int]:
    """Return length, type, flags and stream of the frame at `at`."""
    high, low, kind, flags, stream = _HEADER.unpack_from(data, at)
    return high << 8 | low, kind, flags, stream & 0x7FFFFFFF


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(max_concurrent_streams: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", MAX_CONCURRENT_STREAMS, max_concurrent_streams))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _UNSIGNED.pack(code))


def goaway(last_stream: int, code: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream, code) + text.encode())


def window_update(added_bytes: int) -> bytes:
    """Return a WINDOW_UPDATE frame of the connection."""
    return frame(WINDOW_UPDATE, 0, 0, _UNSIGNED.pack(added_bytes))


def answer(stream: int, status: int, message: str, *, begun: bool) -> bytes:
    """Return the end of a call: a status of gRPC and its text. `begun`: its answer's head is sent already.

    Nothing is entered into the client's table of headers, which belongs to the server behind.
    """
    fields = [] if begun else [(":status", "200"), ("content-type", "application/grpc")]
    fields += [
        ("grpc-status", str(status)),
        ("grpc-message", quote(message, safe=" !#$&'()*+,/:;<=>?@[]{}|^`\"")),
    ]
    block = Encoder().encode([NeverIndexedHeaderTuple(name, value) for name, value in fields], huffman=False)
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block) + reset(stream, NO_ERROR)


class CallRefusal(NamedTuple):
    """The refusal of a call; `status` is gRPC's, `reason` counts it, `begun`: the head of its answer is sent
    already.
    """

    stream: int
    status: int
    reason: str
    error: RtolapError
    begun: bool


class CallRefused(Exception):
    """`status` is gRPC's, `reason` counts it."""

    def __init__(self, status: int, reason: str, error: RtolapError) -> None:
        super().__init__(reason)
        self.status, self.reason, self.error = status, reason, error


@dataclass
class MessageBounds:
    """The bounds on messages of one call, found by their prefixes of five bytes."""

    bytes_max: int
    answer_begun: bool = False
    left_bytes: int = 0
    prefix: bytearray = field(default_factory=bytearray)

    def advance(self, piece: memoryview) -> None:
        """Advance by a piece. Raises CallRefused at the beginning of a message that is too long."""
        at, size = 0, len(piece)
        while at < size:
            if self.left_bytes:
                step = min(self.left_bytes, size - at)
                self.left_bytes -= step
                at += step
                continue
            step = min(MESSAGE_PREFIX_BYTES - len(self.prefix), size - at)
            self.prefix += piece[at : at + step]
            at += step
            if len(self.prefix) == MESSAGE_PREFIX_BYTES:
                self._begin(self.prefix[0], int.from_bytes(self.prefix[1:], "big"))
                self.prefix.clear()

    def _begin(self, compressed: int, size: int) -> None:
        if compressed:
            raise CallRefused(
                UNIMPLEMENTED,
                "compressed",
                Refused("a message is compressed", expected="messages as they are", action="send it so"),
            )
        if size > self.bytes_max:
            raise CallRefused(
                RESOURCE_EXHAUSTED,
                "too_large",
                TooLarge("a message is too large", expected=f"at most {self.bytes_max} bytes", found=size),
            )
        self.left_bytes = size
