"""The socket of hostile clients of every protocol: they send all they have, and read until its end."""

from __future__ import annotations

import contextlib
import select
import socket
import time

ANSWER_TIMEOUT_S = 120.0
QUIET_S = 0.3  # after which who has sent everything ends its side
_ANSWER_BYTES_MAX = 256 << 20


def sent_and_answered(connection: socket.socket, data: bytes) -> bytes:
    """Return all that is answered, until the server ends the connection. It reads while it sends.

    Where nothing comes any more, because the server waits for the rest of what was cut, this side is ended.
    Raises AssertionError where the server neither reads nor answers nor ends it.
    """
    answers, out = bytearray(), memoryview(data)
    connection.setblocking(False)
    until_s = time.monotonic() + ANSWER_TIMEOUT_S
    is_ended = False
    with contextlib.suppress(ConnectionError):
        while True:
            assert time.monotonic() < until_s, "the server neither reads nor answers"
            readable, writable = _ready(connection, bool(out))
            if writable and out:
                with contextlib.suppress(BlockingIOError):
                    out = out[connection.send(out[: 1 << 16]) :]
            if readable:
                piece = connection.recv(1 << 18)
                if not piece:
                    break
                answers += piece
                assert len(answers) < _ANSWER_BYTES_MAX, "an answer without an end"
            if not readable and not out and not is_ended:
                is_ended = True
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
    return bytes(answers)


def _ready(connection: socket.socket, is_sending: bool) -> tuple[bool, bool]:
    poll = select.poll()
    poll.register(connection, select.POLLIN | (select.POLLOUT if is_sending else 0))
    found = poll.poll(QUIET_S * 1000)
    events = found[0][1] if found else 0
    return bool(events & ~select.POLLOUT), bool(events & select.POLLOUT)
