"""Channels of Arrow Flight between the services."""

from __future__ import annotations

from typing import Any

import pyarrow.flight as flight

# gRPC waits 20 s for a connection and, after failures, up to 120 s before the next try (grpc/grpc,
# doc/connection-backoff.md): a peer that has started again would be refused in the meantime.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),  # of one try to connect, too
    # Channels of equal addresses would share connections, and the back-off of those that failed.
    ("grpc.use_local_subchannel_pool", 1),
]


def open_channel(address: str, ca: bytes | None) -> flight.FlightClient:
    """`address` is host:port, `ca` the PEM of a TLS authority. Connects on the first call, and again at once
    when a peer that was away has come back."""
    scheme = "grpc+tls" if ca else "grpc+tcp"
    options: dict[str, Any] = {"tls_root_certs": ca} if ca else {}
    return flight.FlightClient(f"{scheme}://{address}", generic_options=list(_RECONNECT), **options)


def answers(client: flight.FlightClient, headers: list[tuple[bytes, bytes]], within_s: float) -> None:
    """A call that costs the peer nothing. Raises an error of Flight when it does not answer in time."""
    list(client.list_actions(flight.FlightCallOptions(timeout=within_s, headers=headers)))
