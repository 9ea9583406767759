"""The limits of a server: of its requests, messages and open connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.settings import Settings


@dataclass(frozen=True)
class HttpLimits:
    """The limits of one HTTP server. Where each one holds: `http_guard`, `http_protocol`, `http_server`.

    Attributes:
        idle_s: between two requests. It is longer than the rests of clients that ask at regular times: a
            request that comes as the server closes its connection is lost.
        body_bytes_per_s_min: average speed that a body has to reach after `body_grace_s`. Time during which
            the server itself does not take more does not count.
        requests_per_user_max: of `requests_max`, for one user or for the token.
    """

    head_bytes_max: int = 64 << 10
    head_timeout_s: float = 10.0
    idle_s: int = 75
    body_grace_s: float = 120.0
    body_bytes_per_s_min: int = 500
    write_timeout_s: float = 60.0
    linger_s: float = 60.0
    connections_max: int = 1000
    connections_per_address_max: int = 500
    requests_max: int = 512
    requests_per_user_max: int = 384

    @classmethod
    def from_settings(cls, settings: Settings) -> HttpLimits:
        return cls(
            head_timeout_s=settings.http_head_timeout_s,
            body_grace_s=settings.http_body_grace_s,
            write_timeout_s=settings.http_write_timeout_s,
            connections_max=settings.http_connections_max,
            connections_per_address_max=settings.http_connections_per_address_max,
            requests_max=settings.http_requests_max,
            requests_per_user_max=settings.http_requests_per_user_max,
        )


@dataclass(frozen=True)
class FlightLimits:
    """The limits of one Flight endpoint.

    Attributes:
        head_timeout_s: from the connection's beginning until a call with the token has come.
        head_bytes_max: a call's header block, as it is sent and unpacked: gRPC itself takes no more.
        early_bytes_max, early_frames_max: until the first call's head, and that: unpacking costs processor
            time.
        message_bytes_max: one message from a client: tickets, actions and their like.
        batch_bytes_max: one message of a stream of rows (DoPut, DoExchange); None: `message_bytes_max`.
        calls_max: calls under way on one connection; it is announced, and clients hold more back.
        restless_frames_max, restless_frames_per_s: frames that cost the server and bring nothing: cancelled
            calls, pings, settings; a burst, and what may come all the time.
        write_timeout_s: what was read of an answer, at most 256 KiB, is taken by the client in this time.
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

    @classmethod
    def from_settings(cls, settings: Settings) -> FlightLimits:
        return cls(
            head_timeout_s=settings.flight_head_timeout_s,
            write_timeout_s=settings.flight_write_timeout_s,
            connections_max=settings.flight_connections_max,
            connections_per_address_max=settings.flight_connections_per_address_max,
        )


class Connections:
    """A server's open connections, bounded: in all, and from one address.

    A connection is idle before its first request, and after its last one was answered. Where a limit is
    reached, the one that has been idle for longest is closed for the new one: silent connections, however
    many, keep nobody out. One is refused only where all of them are at work.

    Thread-safe. Of an address that is one of many in `admit`, the one with the most gives way."""

    def __init__(self, *, total_max: int, per_address_max: int) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._idle: dict[str, dict[ConnectionPlace, None]] = {}  # of each address, the longest idle first

    def __len__(self) -> int:
        with self._lock:
            return sum(self._open.values())

    def admit(self, address: str, close: Callable[[], object]) -> ConnectionPlace | None:
        """Return a place, idle at first; None where all are at work.

        `close` is called, from any thread, when it has to give way, and may not wait.
        """
        place = ConnectionPlace(self, address, close)
        with self._lock:
            victim: ConnectionPlace | None = None
            if self._open.get(address, 0) >= self._per_address_max:
                victim = self._longest_idle(address)
                if victim is None:
                    return None
            elif sum(self._open.values()) >= self._total_max:
                if not self._idle:
                    return None
                victim = self._longest_idle(max(self._idle, key=lambda each: self._open[each]))
            if victim is not None:
                self._remove(victim)
            self._open[address] = self._open.get(address, 0) + 1
            self._idle.setdefault(address, {})[place] = None
        if victim is not None:
            victim.close()
        return place

    def _longest_idle(self, address: str) -> ConnectionPlace | None:
        return next(iter(self._idle.get(address, ())), None)

    def set_idle(self, place: ConnectionPlace, idle: bool) -> None:
        with self._lock:
            if not place.is_open:
                return
            if idle:
                self._idle.setdefault(place.address, {})[place] = None
            else:
                self._forget_idle(place)

    def leave(self, place: ConnectionPlace) -> None:
        with self._lock:
            if place.is_open:
                self._remove(place)

    def _remove(self, place: ConnectionPlace) -> None:
        place.is_open = False
        self._forget_idle(place)
        self._open[place.address] -= 1
        if not self._open[place.address]:
            del self._open[place.address]

    def _forget_idle(self, place: ConnectionPlace) -> None:
        idle = self._idle.get(place.address)
        if idle is not None:
            idle.pop(place, None)
            if not idle:
                del self._idle[place.address]


class ConnectionPlace:
    """The place of a connection. `close` may be changed to what closes it by now; `leave` may be repeated."""

    def __init__(self, connections: Connections, address: str, close: Callable[[], object]) -> None:
        self.address = address
        self.close = close
        self.is_open = True
        self._connections = connections

    def busy(self) -> None:
        self._connections.set_idle(self, False)

    def idle(self) -> None:
        """Note that the connection waits: its time counts from now on."""
        self._connections.set_idle(self, True)

    def leave(self) -> None:
        self._connections.leave(self)
