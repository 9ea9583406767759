"""The number of moves that a broker may have under way, by the 99th percentile of its produce times.

Copies share disks and network with the clients of a broker. A broker whose writes take longer than the limit
may have half as many moves as it has now, down to none. Otherwise it may have one more at each reading, up to
the `moves_per_broker` of the settings. Copies thus give way at once and come back slowly (additive increase,
multiplicative decrease, as in TCP). A move that is under way is never undone for that, because its copies
would be lost. It ends, and no other begins in its place.

A reading may say nothing about a broker, because of too few writes or because its source does not answer.
Such a broker keeps its number and may have one move in any case, so that a plan comes to its end. A broker
that was never read is not limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec


@dataclass(frozen=True)
class ProduceReading:
    """A reading of the brokers' produce times.

    Attributes:
        p99_ms: Milliseconds by broker. None where too few writes came since the reading before. Brokers that
            could not be read are absent.
    """

    p99_ms: Mapping[int, float | None]


class ProduceReader(Protocol):
    def read(self, now_ms: int) -> ProduceReading | None:
        """Return a reading. None for the first one, which says nothing yet."""


class ProduceWindow(msgspec.Struct, frozen=True):
    """The limit of one broker.

    Attributes:
        moves_max: Moves of the broker that may be under way.
        p99_ms: Produce time of the last reading that counted.
    """

    moves_max: int
    p99_ms: float


class ProduceLatency(msgspec.Struct, frozen=True):
    """Limits of all brokers.

    Attributes:
        p99_ms_max: Produce time above which a broker gets fewer moves.
        windows: Limits by broker, for brokers that were read at some time.
        unread: Brokers that serve and are missing from the last reading.
    """

    p99_ms_max: float
    windows: dict[int, ProduceWindow] = {}
    unread: tuple[int, ...] = ()

    def moves_max(self, broker: int, moves_per_broker: int) -> int:
        window = self.windows.get(broker)
        return moves_per_broker if window is None else min(window.moves_max, moves_per_broker)

    def holding_back(self, moves_per_broker: int) -> dict[int, ProduceWindow]:
        """Return brokers that may have fewer moves than the settings allow."""
        return {
            broker: window for broker, window in self.windows.items() if window.moves_max < moves_per_broker
        }


def after_reading(
    latency: ProduceLatency,
    reading: ProduceReading,
    alive: frozenset[int],
    going: Mapping[int, int],
    moves_per_broker: int,
) -> ProduceLatency:
    """Return the limits after a reading. `going` is the number of moves under way by broker."""
    windows: dict[int, ProduceWindow] = {}
    for broker in sorted(alive):
        former = latency.windows.get(broker)
        p99_ms = reading.p99_ms.get(broker)
        if p99_ms is not None:
            moves_max = moves_per_broker if former is None else former.moves_max
            if p99_ms > latency.p99_ms_max:
                moves_max = min(moves_max, going.get(broker, 0)) // 2
            else:
                moves_max = min(moves_max + 1, moves_per_broker)
            windows[broker] = ProduceWindow(moves_max, round(p99_ms, 1))
        elif former is not None:
            windows[broker] = ProduceWindow(max(1, former.moves_max), former.p99_ms)
    unread = tuple(sorted(alive - reading.p99_ms.keys()))
    return ProduceLatency(latency.p99_ms_max, windows, unread)
