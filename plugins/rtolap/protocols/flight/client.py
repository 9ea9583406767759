"""Common parts of the Flight clients: a channel, one client for each address, named errors, pings."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyarrow import flight

from rtolap.base.closeable import Closeable
from rtolap.base.errors import Corrupted, RtolapError, Unauthorized, Unavailable, from_dict

C = TypeVar("C", bound=Closeable)

ERROR_MARK = "rtolap-error:"

PING_AFTER_S = 0.25  # without an answer, before a peer is pinged and after each ping that it has answered
PING_S = 0.5  # within which a peer answers one
PING_AGAIN_S = 1.0  # between pings of a peer that did not answer the last

_DECODER = json.JSONDecoder()
# gRPC waits 20 s for a connection and, after failures, up to 120 s before the next try (grpc/grpc,
# doc/connection-backoff.md): a peer that has started again would be refused in the meantime.
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),  # of one try to connect, too
    # Channels of equal addresses would share connections, and the back-off of those that failed.
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy of the environment is one on the way out of the network: see `rest.clients`.
    ("grpc.enable_http_proxy", 0),
]


def open_channel(
    address: str, ca: bytes | None, middleware: Sequence[flight.ClientMiddlewareFactory] = ()
) -> flight.FlightClient:
    """Open a channel to `address`, host:port; `ca` is the PEM of a TLS authority. It connects on the first
    call, and again at once when a peer that was away has come back.

    Raises Unavailable for an address that nobody can call: it was announced, and another one may answer.
    """
    scheme = "grpc+tls" if ca else "grpc+tcp"
    options: dict[str, Any] = {"tls_root_certs": ca} if ca else {}
    try:
        return flight.FlightClient(
            f"{scheme}://{address}", generic_options=list(_OPTIONS), middleware=list(middleware), **options
        )
    except pa.ArrowInvalid as error:
        raise Unavailable(
            "nobody can be called at this address", expected="host:port", found=repr(address)
        ) from error


def answers(client: flight.FlightClient, headers: list[tuple[bytes, bytes]], within_s: float) -> None:
    """Make a call that costs the peer nothing. Raises an error of Flight when it does not answer in time."""
    list(client.list_actions(flight.FlightCallOptions(timeout=within_s, headers=headers)))


class FlightClients(Closeable, Generic[C]):
    """Clients by address, each made on first use. Thread-safe.

    `connect` makes the client of an address; it reaches nobody yet.
    """

    def __init__(self, connect: Callable[[str], C]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._clients: dict[str, C] = {}

    def at(self, address: str) -> C:
        with self._lock:
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._connect(address)
            return client

    def keep(self, addresses: Collection[str]) -> None:
        """Close those of other addresses."""
        with self._lock:
            gone = [self._clients.pop(known) for known in list(self._clients) if known not in addresses]
        for client in gone:
            client.close()

    def close(self) -> None:
        self.keep(())


def named(peer: str, operation: str, error: Exception) -> RtolapError:
    """Return the error that the peer has named; else that it does not respond, or not to this token.

    Errors cross Flight in their text: the JSON of `RtolapError.to_dict()` behind ERROR_MARK.
    """
    text = str(error)
    _, mark, encoded = text.partition(ERROR_MARK)
    if mark:
        try:
            payload, _ = _decode_prefix(encoded)
        except ValueError:
            return Corrupted(f"{peer} failed to {operation}", found=text[:500])
        return from_dict(payload)
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return Unauthorized(f"{peer} does not accept the cluster token")
    return Unavailable(f"{peer} does not answer {operation}", found=text[:300])


def _decode_prefix(text: str) -> tuple[dict[str, Any], int]:
    """Return the JSON object at the beginning; gRPC adds words of its own behind it."""
    payload, end = _DECODER.raw_decode(text.lstrip())
    if not isinstance(payload, dict):
        raise ValueError("not an object")
    return payload, end


def next_batch(reader: Any) -> pa.RecordBatch | None:
    """Return the next batch; None at the end.

    `read_all` is not used: when it is cancelled, from whatever thread, pyarrow interrupts the main thread as
    Ctrl-C does (`SignalStopHandler.__exit__`), which ends a service.
    """
    try:
        return reader.read_chunk().data
    except StopIteration:
        return None


def silence(ping: Callable[[float], None]) -> Unavailable | None:
    """Return None if the peer answers, with whatever error. Otherwise return what `ping(within_s)` raised.

    A ping shows whether a peer is silent: a busy one responds to it, one that stands still does not.
    """
    try:
        ping(PING_S)
    except Unavailable as error:
        return error
    except RtolapError:
        return None
    return None
