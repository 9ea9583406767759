"""Bounds of a consumer's ports: what one client may send, and how long it may take."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import DefinitionError

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
