"""The bytes of a request on their way from the event loop to the thread that works on them.

Bounded: while the thread is behind, the loop does not take more from the socket, and the client has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from threading import Condition

from rtolap.base.errors import RtolapError, Unavailable

BYTES_MAX = 4 << 20


class BodyPipe:
    """A bounded queue of body bytes: the event loop calls `put`, `end` and `fail`, one thread the rest.

    Attributes:
        received_bytes: the bytes that were put.
        waited_s: how long the thread waited for bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, bytes_max: int = BYTES_MAX) -> None:
        self._loop = loop
        self._bytes_max = bytes_max
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._error: RtolapError | None = None
        self._closed = False
        self._changed = Condition()
        self._room = asyncio.Event()
        self.received_bytes = 0
        self.waited_s = 0.0

    async def put(self, chunk: bytes) -> bool:
        """Wait for room, then hand it over; False once nobody reads any more: the rest may be thrown away."""
        while True:
            with self._changed:
                if self._closed:
                    return False
                if self._bytes < self._bytes_max:
                    self._chunks.append(chunk)
                    self._bytes += len(chunk)
                    self.received_bytes += len(chunk)
                    self._changed.notify()
                    return True
                self._room.clear()  # under the lock: the thread that makes room sets it after this
            await self._room.wait()

    def end(self) -> None:
        """Note that the body is complete."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def fail(self, error: RtolapError) -> None:
        """Fail the body, which will never be complete. The thread gets this error, also in place of data that
        it has not read yet."""
        with self._changed:
            self._error = error
            self._changed.notify()

    def chunks(self, deadline_s: float) -> Iterator[bytes]:
        """Yield chunks until the body ends.

        Raises the error that was passed to `fail`, and Unavailable at `deadline_s` (monotonic).
        """
        while True:
            began_s = time.monotonic()
            with self._changed:
                while self._error is None and not self._chunks and not self._ended:
                    if not self._changed.wait(max(0.0, deadline_s - time.monotonic())):
                        raise Unavailable(
                            "the body did not come in time", action="send it faster, or with a longer timeout"
                        )
                self.waited_s += time.monotonic() - began_s
                if self._error is not None:
                    raise self._error
                if not self._chunks:
                    return
                chunk = self._chunks.popleft()
                full, self._bytes = self._bytes >= self._bytes_max, self._bytes - len(chunk)
            if full:
                self._make_room()
            yield chunk

    def close(self) -> None:
        """Close the reading end. Nobody reads any more."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
        self._make_room()

    def _make_room(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._room.set)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # the server has ended: nobody waits there any more
