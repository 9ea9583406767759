"""The limits of one HTTP server. Where each one holds: `http_guard`, `http_protocol`, `http_server`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HttpLimits:
    """The limits of one server process. `requests_per_user_max`: of `requests_max`, for one user or for the
    token.

    `body_bytes_per_s_min` is what a body has to come with on average, after `body_grace_s`; time during which
    the server itself does not take more does not count.
    """

    head_bytes_max: int = 64 << 10
    head_timeout_s: float = 10.0
    body_grace_s: float = 120.0
    body_bytes_per_s_min: int = 500
    write_timeout_s: float = 60.0
    linger_s: float = 60.0
    connections_max: int = 1000
    connections_per_address_max: int = 500
    requests_max: int = 512
    requests_per_user_max: int = 384
