"""Frames have 3 bytes of length and 1 of sequence, little-endian. 2^24-1 bytes of payload continue in the
next."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Protocol

from rtolap.base.errors import RtolapError
from rtolap.query.mysql.codes import PacketTooLarge

log = logging.getLogger(__name__)

FRAME_MAX = (1 << 24) - 1
FLUSH_BYTES = 64 << 10
PIECE_BYTES = 256 << 10  # that are read at a time
SMALL_BYTES = 64 << 10  # of a payload: so much a connection has without asking

Reserve = Callable[[int], None]  # bytes of a payload; raises an error of the tree


class ConnectionClosed(Exception):
    """The client went away, so nothing can be sent to it any more."""


class ReaderTooSlow(ConnectionClosed):
    """The error that a client is there, but takes nothing."""


class Packets(Protocol):
    """Takes packets and frames them, numbered from `sequence` on."""

    sequence: int

    def write(self, payload: bytes | bytearray | memoryview) -> None: ...

    def write_frames(self, frames: bytes, sequence: int) -> None:
        """Write complete frames. `sequence` is the number of the packet behind them."""


class Frames(Packets):
    """Packets framed in memory, to be sent more than once."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.out = bytearray()

    def write(self, payload: bytes | bytearray | memoryview) -> None:
        self.sequence = frame(payload, self.sequence, self.out)

    def write_frames(self, frames: bytes, sequence: int) -> None:
        self.out += frames
        self.sequence = sequence


class PacketStream(Packets):
    """A stream of packets.

    Only `shut` is thread-safe. Writes are buffered until `flush`, or up to FLUSH_BYTES.

    Attributes:
        sock: the socket; it is replaced once, when TLS starts, so the connection is ended through the stream.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sequence = 0
        self._out = bytearray()
        self._deadline_s: float | None = None
        self._write_timeout_s: float | None = None

    def limit_time(self, total_s: float) -> None:
        """Limit the total time of all that is read from now on, however slowly it comes."""
        self._deadline_s = time.monotonic() + total_s

    def limit_silence(self, silence_s: float, write_timeout_s: float) -> None:
        """Limit the pause between two pieces that are read, and the time of a flush.

        This replaces a limit of the time in all.
        """
        self._deadline_s = None
        self._write_timeout_s = write_timeout_s
        self.sock.settimeout(silence_s)

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Start TLS. Raises ConnectionClosed when the handshake fails."""
        self._keep_deadline()
        try:
            wrapped = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
            self.sock = wrapped  # before the handshake, so that `shut` ends it too
            wrapped.do_handshake()
        except OSError as error:
            raise ConnectionClosed(f"TLS failed: {error}") from error

    @property
    def tls_cipher(self) -> str:
        """The cipher of the connection; empty without TLS."""
        cipher = self.sock.cipher() if isinstance(self.sock, ssl.SSLSocket) else None
        return "" if cipher is None else cipher[0]

    def shut(self) -> None:
        """End the connection, whatever it is doing; harmless when it has ended. `close` gives the descriptor
        back.
        """
        try:
            # SSLSocket.shutdown would drop its TLS state under a thread that is reading.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            log.debug("the socket was closed already")

    def close(self) -> None:
        """Give the descriptor back: only the thread that reads may do so, at its end.

        If another one did, the next connection could get its number, and the reader would go on waiting for
        bytes of that one.
        """
        self.shut()
        self.sock.close()

    def read(self, bytes_max: int, reserve: Reserve | None = None) -> bytes:
        """Read a payload.

        A refused payload is read to its end and dropped, because a client reads nothing before it has sent
        everything, and the next packet follows it. Before a login, while the total time is limited, it is
        not.

        Args:
            reserve: called with the number of bytes received, before more are stored.

        Raises ConnectionClosed, PacketTooLarge, and the error that `reserve` raises.
        """
        payload, total = bytearray(), 0
        refused: RtolapError | None = None
        while True:
            header = self._exactly(4)
            length = int.from_bytes(header[:3], "little")
            self.sequence = (header[3] + 1) & 0xFF
            total += length
            if refused is None and total > bytes_max:
                payload.clear()
                refused = PacketTooLarge(
                    "packet too large", expected=f"at most {bytes_max} bytes", found=total
                )
                if self._deadline_s is not None:
                    break
            left = length
            while left:
                piece = self._piece(min(left, PIECE_BYTES))
                left -= len(piece)
                if refused is None:
                    refused = _append_piece(payload, piece, reserve)
            if length < FRAME_MAX:
                break
        if refused is not None:
            raise refused
        return bytes(payload)

    def write(self, payload: bytes | bytearray | memoryview) -> None:
        self.sequence = frame(payload, self.sequence, self._out)
        if len(self._out) >= FLUSH_BYTES:
            self.flush()

    def write_frames(self, frames: bytes, sequence: int) -> None:
        self._out += frames
        self.sequence = sequence
        if len(self._out) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._out:
            return
        sock = self.sock
        try:
            if self._write_timeout_s is None:
                sock.sendall(self._out)
                return
            silence_s = sock.gettimeout()
            sock.settimeout(self._write_timeout_s)
            sock.sendall(self._out)
            sock.settimeout(silence_s)
        except TimeoutError as error:
            raise ReaderTooSlow("the client did not read its answer in time") from error
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        finally:
            self._out = bytearray()

    def _exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            parts += self._piece(length - len(parts))
        return bytes(parts)

    def _piece(self, bytes_max: int) -> bytes:
        self._keep_deadline()
        try:
            piece = self.sock.recv(bytes_max)
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        if not piece:
            raise ConnectionClosed("end of stream")
        return piece

    def _keep_deadline(self) -> None:
        if self._deadline_s is None:
            return
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise ConnectionClosed("the time to log in is over")
        self.sock.settimeout(left_s)


def _append_piece(payload: bytearray, piece: bytes, reserve: Reserve | None) -> RtolapError | None:
    """Append the piece to the payload. If it is refused, drop the payload and return the reason."""
    size = len(payload) + len(piece)
    try:
        if reserve is not None and size > SMALL_BYTES:
            reserve(size)
    except RtolapError as error:
        payload.clear()
        return error
    payload += piece
    return None


def frame(payload: bytes | bytearray | memoryview, sequence: int, out: bytearray) -> int:
    """Append the payload's frames, numbered from `sequence` on. Returns the number of the next one."""
    size = len(payload)
    if size < FRAME_MAX:
        out += (size | sequence << 24).to_bytes(4, "little")
        out += payload
        return (sequence + 1) & 0xFF
    view = memoryview(payload)
    while True:
        piece, view = view[:FRAME_MAX], view[FRAME_MAX:]
        out += struct.pack("<I", len(piece) | sequence << 24)
        out += piece
        sequence = (sequence + 1) & 0xFF
        if len(piece) < FRAME_MAX:
            return sequence


def length_encoded(value: int) -> bytes:
    if value < 251:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def length_encoded_string(value: bytes) -> bytes:
    return length_encoded(len(value)) + value


class PacketFields:
    """Reads the fields of one payload. Raises ConnectionClosed for a payload that ends too early."""

    def __init__(self, payload: bytes, at: int = 0) -> None:
        self.payload = payload
        self.at = at

    def read(self, length: int) -> bytes:
        piece = self.payload[self.at : self.at + length]
        if len(piece) < length:
            raise ConnectionClosed("malformed packet")
        self.at += length
        return piece

    def integer(self, length: int) -> int:
        return int.from_bytes(self.read(length), "little")

    def null_terminated(self) -> bytes:
        end = self.payload.find(b"\0", self.at)
        end = len(self.payload) if end < 0 else end
        piece = self.payload[self.at : end]
        self.at = end + 1
        return piece

    def length_encoded(self) -> int:
        first = self.integer(1)
        if first < 251:
            return first
        widths = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        if first not in widths:
            raise ConnectionClosed("malformed length")
        return self.integer(widths[first])

    def string(self) -> bytes:
        return self.read(self.length_encoded())

    def rest(self) -> bytes:
        piece = self.payload[self.at :]
        self.at = len(self.payload)
        return piece

    @property
    def done(self) -> bool:
        return self.at >= len(self.payload)
