"""A hostile client of an Arrow Flight server: calls without the token, and bytes that are no calls."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

_TIMEOUT_S = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_NAMES = ("", "drop", "ping", "truncate", "prepare", "x" * 1_000, "é", "abort", "create", "status")
_SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True)
class HostileFlight:
    """`large_bytes`: of one ticket in a thousand, for servers that bound what they read without the token."""

    host: str
    port: int
    large_bytes: int = 0

    def call(self, rng: random.Random, calls: int) -> int:
        """Make so many calls over one channel. Returns how many were refused: all of them.

        Raises AssertionError for one that is answered, or not even refused in time.
        """
        with flight.connect(f"grpc://{self.host}:{self.port}") as client:
            for _ in range(calls):
                options = flight.FlightCallOptions(_TIMEOUT_S, headers=_credentials(rng))
                try:
                    found = self._one(rng)(client, options)
                except flight.FlightTimedOutError as error:
                    raise AssertionError("a call was not refused in time") from error
                except (pa.ArrowException, flight.FlightError):
                    continue
                raise AssertionError(f"answered without the token: {str(found)[:200]}")
        return calls

    def send(self, rng: random.Random) -> int:
        """Send bytes that are no gRPC, or only begin as it; the server ends that or this side does."""
        frames = b"".join(
            rng.randrange(100).to_bytes(3, "big")
            + bytes((rng.randrange(12), rng.randrange(256)))
            + rng.randbytes(20)
            for _ in range(rng.randrange(5))
        )
        data = rng.choice((_PREFACE + frames, frames, b"GET / HTTP/1.1\r\n\r\n", bytes(1_000), _PREFACE[:9]))
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.host, self.port), timeout=0.2) as connection,
        ):
            connection.sendall(data)
            if rng.random() < 0.1:
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)
        return 1

    def _one(self, rng: random.Random) -> Callable[[flight.FlightClient, flight.FlightCallOptions], Any]:
        size = rng.choice((0, 1, 100, 10_000))
        if self.large_bytes and rng.random() < 0.001:
            size = self.large_bytes
        data = rng.choice((bytes(size), b"{" * min(size, 10_000), rng.randbytes(min(size, 10_000))))
        match rng.randrange(6):
            case 0:
                return lambda client, options: client.do_get(flight.Ticket(data), options).read_all()
            case 1:
                action = flight.Action(rng.choice(_NAMES), data)
                return lambda client, options: list(client.do_action(action, options))
            case 2:
                described = flight.FlightDescriptor.for_command(data)
                return lambda client, options: client.get_flight_info(described, options)
            case 3:
                return lambda client, options: list(client.list_flights(data, options))
            case 4:
                return lambda client, options: list(client.list_actions(options))
            case _:
                return lambda client, options: _put(client, options, data)


def _put(client: flight.FlightClient, options: flight.FlightCallOptions, data: bytes) -> str:
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(data), _SCHEMA, options)
    with contextlib.suppress(pa.ArrowException, flight.FlightError):
        writer.write_table(pa.table({"id": [1, 2, 3]}))
    writer.close()  # raises what the server said
    return "a put"


def _credentials(rng: random.Random) -> list[tuple[bytes, bytes]]:
    wrong = (b"Bearer ", b"Bearer wrong", b"Basic YTpi", b"x" * 1_000, b"Bearer " + b"a" * 4_000)
    return rng.choice(([], [(b"authorization", rng.choice(wrong))]))
