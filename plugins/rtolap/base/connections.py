"""Limits on a server's open connections: in all, and from one address.

A connection is idle while nothing has been asked on it, or nothing any more. Where a limit is reached, the
one that has been idle for longest is closed for the new one: silent connections, however many, keep nobody
out. One is refused only where all of them are at work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Connections:
    """Thread-safe. Of an address that is one of many in `admit`, the one with the most gives way."""

    def __init__(self, *, total_max: int, per_address_max: int) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._idle: dict[str, dict[Place, None]] = {}  # of each address, the longest idle first

    def __len__(self) -> int:
        with self._lock:
            return sum(self._open.values())

    def admit(self, address: str, close: Callable[[], object]) -> Place | None:
        """A place, idle at first; None where all are at work. `close` is called, from any thread, when it has
        to give way, and may not wait."""
        place = Place(self, address, close)
        with self._lock:
            victim: Place | None = None
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

    def _longest_idle(self, address: str) -> Place | None:
        return next(iter(self._idle.get(address, ())), None)

    def set_idle(self, place: Place, idle: bool) -> None:
        with self._lock:
            if not place.is_open:
                return
            if idle:
                self._idle.setdefault(place.address, {})[place] = None
            else:
                self._forget_idle(place)

    def leave(self, place: Place) -> None:
        with self._lock:
            if place.is_open:
                self._remove(place)

    def _remove(self, place: Place) -> None:
        place.is_open = False
        self._forget_idle(place)
        self._open[place.address] -= 1
        if not self._open[place.address]:
            del self._open[place.address]

    def _forget_idle(self, place: Place) -> None:
        idle = self._idle.get(place.address)
        if idle is not None:
            idle.pop(place, None)
            if not idle:
                del self._idle[place.address]


class Place:
    """One connection's. `close` may be changed to what closes it by now; `leave` may be repeated."""

    def __init__(self, connections: Connections, address: str, close: Callable[[], object]) -> None:
        self.address = address
        self.close = close
        self.is_open = True
        self._connections = connections

    def busy(self) -> None:
        self._connections.set_idle(self, False)

    def idle(self) -> None:
        """Its time counts from now on."""
        self._connections.set_idle(self, True)

    def leave(self) -> None:
        self._connections.leave(self)
