"""Limits of a consumer's ports: what one client may send, how long it may take, how much its refusals log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from rtolap.base.errors import DefinitionError

log = logging.getLogger(__name__)

_LINES_MAX: Final = 20
_PERIOD_S: Final = 60.0
_MIB = 1 << 20


class ConsumerSettings(msgspec.Struct, frozen=True):
    """HBase ships at most 64 MiB of edits in a call by default (`replication.source.size.capacity`), and a
    single edit may be larger: `frame_bytes_max` holds both.

    `bytes_in_flight_max`: of all frames that are read or worked on; beyond it nothing more is read.
    `default_timeout_s`: of calls whose client names none.
    """

    frame_bytes_max: int = 256 * _MIB
    bytes_in_flight_max: int = 512 * _MIB
    connections_max: int = 1024
    calls_per_connection_max: int = 16
    handshake_timeout_s: float = 15.0
    frame_timeout_s: float = 120.0
    idle_timeout_s: float = 900.0
    default_timeout_s: float = 60.0
    decode_threads: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.frame_bytes_max <= self.bytes_in_flight_max:
            raise DefinitionError(
                "a consumer could never read its largest frame",
                expected=f"0 < frame_bytes_max <= bytes_in_flight_max = {self.bytes_in_flight_max}",
                found=self.frame_bytes_max,
            )


class ByteBudget:
    """Hands out bytes in the order in which they are asked for; for one event loop.

    Who waits is called once its bytes are its own. Nobody overtakes: small frames never starve a large one.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.taken_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def reserve(self, count: int, then: Callable[[], None]) -> bool:
        """Call `then` at once and return True, or once `count` bytes, at most the size, are free."""
        if self._waiting or self.taken_bytes + count > self.size_bytes:
            self._waiting.append((count, then))
            return False
        self.taken_bytes += count
        then()
        return True

    def forget(self, then: Callable[[], None]) -> None:
        """Wait no longer: `then` is not called any more."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[1] != then)
        self._hand_out()

    def give_back(self, count: int) -> None:
        self.taken_bytes -= count
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.taken_bytes + self._waiting[0][0] <= self.size_bytes:
            count, then = self._waiting.popleft()
            self.taken_bytes += count
            then()


class RefusalLog:
    """Writes at most 20 lines a minute, and then how many were left out."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._lines = 0

    def refused(self, address: str, reason: object) -> None:
        now_s = time.monotonic()
        if now_s - self._since_s >= _PERIOD_S:
            if self._lines > _LINES_MAX:
                log.warning("%d more clients were refused", self._lines - _LINES_MAX)
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= _LINES_MAX:
            log.warning("%s is refused: %s", address, reason)
