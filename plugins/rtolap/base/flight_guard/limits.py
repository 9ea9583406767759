"""The limits of one Flight endpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlightLimits:
    """
    head_timeout_s         from the connection's beginning until a call with the token has come
    head_bytes_max         a call's header block, as it is sent and unpacked: gRPC itself takes no more
    early_bytes_max, early_frames_max   until the first call's head, and that: unpacking costs processor time
    message_bytes_max      one message from a client: tickets, actions and their like
    batch_bytes_max        one message of a stream of rows (DoPut, DoExchange); None: `message_bytes_max`
    calls_max              calls under way on one connection; it is announced, and clients hold more back
    restless_frames_max, restless_frames_per_s   frames that cost the server and bring nothing: cancelled
                           calls, pings, settings; a burst, and what may come all the time
    write_timeout_s        what was read of an answer, at most 256 KiB, is taken by the client in this time
    """

    head_timeout_s: float = 10.0
    head_bytes_max: int = 16 << 10
    early_bytes_max: int = 4 << 10
    early_frames_max: int = 64
    message_bytes_max: int = 16 << 20
    batch_bytes_max: int | None = None
    calls_max: int = 512
    restless_frames_max: int = 2000
    restless_frames_per_s: float = 200.0
    write_timeout_s: float = 60.0
    connections_max: int = 1000
    connections_per_address_max: int = 500
