"""The events of a fleet, sent to a topic while they happen; hosts can be made to stall, and then catch up.

    start ──▶ every tick: all hosts hand on what they have logged since ──▶ finish
                 stall(hosts, from_ms): nothing that they log from then on leaves them
                 release(hosts): their backlog comes in, in order, ten times as fast as it was logged

Who looks on knows at any time how many events of a window there are, and how many have left their hosts.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray
from rtolap.base.clock import Clock
from rtolap.kafka.interfaces import OutRecord, StreamProducer

from tests.support.watermarks.host_events import (
    NOTHING,
    STATUSES,
    Events,
    Fleet,
    Hosts,
    as_json,
    together,
    window_events,
)

log = logging.getLogger(__name__)

CATCH_UP_SPEED = 10
TICK_S = 0.2
_FLUSH_S = 60.0
_NOT_STALLED = 2**63 - 1

Counts = dict[tuple[str, int], tuple[int, int]]  # (host, status) → (events, bytes sent)


class Delivery:
    """The delivery of events from their hosts: of each one all events before its own `reached_ms` have left.
    Pure; windows begin at `start_ms`.
    """

    def __init__(self, of: Fleet, start_ms: int, window_ms: int) -> None:
        self._fleet = of
        self._start_ms, self._window_ms = start_ms, window_ms
        self._logged_ms = self._now_ms = start_ms
        self._pending = NOTHING
        self._stalled_from_ms = np.full(of.hosts, _NOT_STALLED, np.int64)
        self.reached_ms = np.full(of.hosts, start_ms, np.int64)
        self.logged: list[int] = []  # events by window

    def stall(self, hosts: Hosts, from_ms: NDArray[np.int64]) -> None:
        self._stalled_from_ms[hosts] = from_ms

    def release(self, hosts: Hosts) -> None:
        self._stalled_from_ms[hosts] = _NOT_STALLED

    def step(self, now_ms: int) -> Events:
        """Return the events that leave the hosts now, by event time."""
        while self._logged_ms < now_ms:
            more = window_events(self._fleet, self._logged_ms, self._window_ms)
            self.logged.append(len(more))
            self._pending = together([self._pending, more])
            self._logged_ms += self._window_ms
        furthest = self.reached_ms + CATCH_UP_SPEED * (now_ms - self._now_ms)
        target = np.minimum(np.minimum(self._stalled_from_ms, now_ms), furthest)
        self.reached_ms = np.maximum(self.reached_ms, target)
        self._now_ms = now_ms
        leaving = self._pending.at_ms < self.reached_ms[self._pending.host]
        sent, self._pending = self._pending.only(leaving), self._pending.only(~leaving)
        return sent


class Ledger:
    """Counts of what was sent, by window and time. Windows are counted from `start_ms`."""

    def __init__(self, of: Fleet, start_ms: int, window_ms: int) -> None:
        self._fleet = of
        self._start_ms, self._window_ms = start_ms, window_ms
        self._times_ms: list[int] = []
        self._by_window: list[NDArray[np.int64]] = []
        shape = (of.hosts, len(STATUSES))
        self._events, self._bytes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.ends: dict[int, int] = dict.fromkeys(range(int(of.partition.max()) + 1), 0)

    def add(self, events: Events, at_ms: int) -> None:
        self._times_ms.append(at_ms)
        self._by_window.append(np.bincount((events.at_ms - self._start_ms) // self._window_ms))
        np.add.at(self._events, (events.host, events.status), 1)
        np.add.at(self._bytes, (events.host, events.status), events.bytes_sent)
        records = np.bincount(self._fleet.partition[events.host], minlength=len(self.ends))
        self.ends = {partition: end + int(records[partition]) for partition, end in self.ends.items()}

    @property
    def total(self) -> int:
        return int(self._events.sum())

    def sent(self, window: int, by_ms: int | None = None) -> int:
        """Return the events of a window that had been handed to Kafka by then; None: until now."""
        upto = len(self._times_ms) if by_ms is None else bisect_right(self._times_ms, by_ms)
        return sum(int(counts[window]) for counts in self._by_window[:upto] if len(counts) > window)

    def recount(self) -> Counts:
        """Recount everything that was sent."""
        rows, columns = np.nonzero(self._events)
        return {
            (self._fleet.names[host], int(STATUSES[status])): (
                int(self._events[host, status]),
                int(self._bytes[host, status]),
            )
            for host, status in zip(rows.tolist(), columns.tolist(), strict=True)
        }


class HostStream(threading.Thread):
    """Sends in real time. `problem`: what ended it before `finish`."""

    def __init__(
        self,
        of: Fleet,
        producer: StreamProducer,
        topic: str,
        clock: Clock,
        *,
        start_ms: int,
        window_ms: int,
        tick_s: float = TICK_S,
    ) -> None:
        super().__init__(name=f"hosts-{topic}", daemon=True)
        self.fleet, self.start_ms, self.window_ms = of, start_ms, window_ms
        self.ledger = Ledger(of, start_ms, window_ms)
        self.problem: Exception | None = None
        self._delivery = Delivery(of, start_ms, window_ms)
        self._producer, self._topic, self._clock = producer, topic, clock
        self._tick_s = tick_s
        self._lock = threading.Lock()  # of delivery and ledger
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._tick_s):
                self._turn(self._clock.now_ms())
        except Exception as error:  # whoever waits for the stream has to hear of it
            log.exception("the stream of %s broke", self._topic)
            self.problem = error

    def stall(self, hosts: Hosts, from_ms: NDArray[np.int64]) -> None:
        """Stall hosts one by one; what one has sent already stays sent."""
        with self._lock:
            self._delivery.stall(hosts, from_ms)

    def release(self, hosts: Hosts) -> None:
        with self._lock:
            self._delivery.release(hosts)

    def logged(self, window: int) -> int:
        """Return the events of a window that has begun, including those still to come or still with their
        hosts."""
        with self._lock:
            return self._delivery.logged[window]

    def sent(self, window: int, by_ms: int | None = None) -> int:
        with self._lock:
            return self.ledger.sent(window, by_ms)

    def reached_ms(self) -> NDArray[np.int64]:
        """Return, host by host, the instant before which all has been sent."""
        with self._lock:
            return self._delivery.reached_ms.copy()

    def all_out(self, window: int) -> bool:
        """Return whether every event of the window has left its host. Raises what ended the stream."""
        if self.problem is not None:
            raise self.problem
        return self.sent(window) == self.logged(window)

    def finish(self, *, timeout_s: float = _FLUSH_S) -> None:
        """Finish: no host logs any more, and what was sent is stored. Raises what ended the stream, or
        Unavailable."""
        self._stopping.set()
        self.join(timeout_s)
        if self.problem is not None:
            raise self.problem
        self._producer.flush(timeout_s)

    def _turn(self, now_ms: int) -> None:
        with self._lock:
            events = self._delivery.step(now_ms)
            if not len(events):
                return
            self.ledger.add(events, now_ms)
        values, partitions = as_json(self.fleet, events), self.fleet.partition[events.host].tolist()
        records = [OutRecord(value, partition=at) for value, at in zip(values, partitions, strict=True)]
        self._producer.produce(self._topic, records)
