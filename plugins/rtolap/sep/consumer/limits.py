"""Limits of a consumer's ports: what one client may send, how long it may take, how much its refusals log."""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings

log = logging.getLogger(__name__)

_LINES_MAX: Final = 20
_PERIOD_S: Final = 60.0
_MIB = 1 << 20


class ConsumerSettings(msgspec.Struct, frozen=True):
    """HBase ships at most 64 MiB of edits in a call by default (`replication.source.size.capacity`), and a
    single edit may be larger: `frame_bytes_max` holds both.

    Attributes:
        bytes_in_flight_max: of all frames that are read or worked on, see `frame_budget`.
        connections_per_address_max: of `connections_max`, for one address.
        frame_grace_s: then a frame has come with `frame_bytes_per_s_min` on average. Time in which the
            consumer itself does not read does not count.
        contended_grace_s: a frame that fills nothing for so long is dropped while others wait for memory.
        entries_max, cells_max: of one call.
        default_timeout_s: of calls whose client names none.
    """

    frame_bytes_max: int = 256 * _MIB
    bytes_in_flight_max: int = 512 * _MIB
    connections_max: int = 1024
    connections_per_address_max: int = 512
    calls_per_connection_max: int = 16
    handshake_timeout_s: float = 15.0
    frame_grace_s: float = 15.0
    frame_bytes_per_s_min: int = 256 << 10
    contended_grace_s: float = 2.0
    idle_timeout_s: float = 900.0
    default_timeout_s: float = 60.0
    entries_max: int = 200_000
    cells_max: int = 2_000_000
    decode_threads: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.frame_bytes_max <= self.bytes_in_flight_max:
            raise DefinitionError(
                "a consumer could never read its largest frame",
                expected=f"0 < frame_bytes_max <= bytes_in_flight_max = {self.bytes_in_flight_max}",
                found=self.frame_bytes_max,
            )

    @staticmethod
    def of(settings: Settings) -> ConsumerSettings:
        """Return the limits that the host has set."""
        return ConsumerSettings(
            frame_bytes_max=settings.sep_frame_bytes_max,
            bytes_in_flight_max=settings.sep_bytes_in_flight_max,
            connections_max=settings.sep_connections_max,
            connections_per_address_max=settings.sep_connections_per_address_max,
            frame_grace_s=settings.sep_frame_grace_s,
            frame_bytes_per_s_min=settings.sep_frame_bytes_per_s_min,
            contended_grace_s=settings.sep_contended_grace_s,
            entries_max=settings.sep_entries_max,
            cells_max=settings.sep_cells_max,
        )


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
