"""The Prometheus metrics of a consumer: connections, frames, calls, and what was in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.consumer.frame_budget import FrameBudget
from rtolap.sep.events.decode import DecodedCall

# Reasons for which a connection ends; any other is a programming error, found by its tests.
CLOSED_REASONS: Final = (
    "client",  # the client left
    "address",  # its address is not allowed
    "too_many",  # as many connections as there may be, and all are at work
    "crowded",  # was idle for longest where another one came
    "kerberos",  # wants to log in
    "preamble",  # speaks no HBase
    "header",  # its connection header cannot be read
    "oversized",  # a frame beyond the bound
    "torn",  # a request that cannot be read
    "slow",  # a frame that came too slowly, or stood still while others waited
    "silent",  # did not finish what it began, or did nothing at all, for too long
    "draining",  # the consumer stops
)
CALL_OUTCOMES: Final = ("done", "failed", "unreadable", "not_in_log", "late", "unsupported", "unknown_method")


class ConsumerMetrics:
    """Counters grow by calls and connections, never by cells."""

    def __init__(self) -> None:
        self.registry = Metrics("sep_consumer")
        self._accepted = self.registry.counter("connections_accepted")
        self._closed = self.registry.counter("connections_closed")
        self._calls = self.registry.counter("calls")
        self._bytes = self.registry.counter("received_bytes")
        self._entries = self.registry.counter("entries")
        self._events = self.registry.counter("events")
        self._cells = self.registry.counter("cells")
        self._left_out = self.registry.counter("left_out")
        self.call_seconds = self.registry.histogram("call_seconds")
        self._set_apart = self.registry.counter("set_apart_events")
        self.open_connections = 0
        for reason in CLOSED_REASONS:
            self._closed.labels(reason)
        for outcome in CALL_OUTCOMES:
            self._calls.labels(outcome)

    def follow(self, budget: FrameBudget) -> None:
        def sample() -> Iterator[Family]:
            yield self.registry.value("connections", self.open_connections)
            yield self.registry.value("in_flight_bytes", budget.taken_bytes)
            yield self.registry.value("waiting_frames", budget.waiting)

        self.registry.sampled(sample)

    def accepted(self) -> None:
        self.open_connections += 1
        self._accepted.inc()

    def closed(self, reason: str) -> None:
        assert reason in CLOSED_REASONS, reason
        self.open_connections -= 1
        self._closed.labels(reason).inc()

    def answered(self, outcome: str) -> None:
        assert outcome in CALL_OUTCOMES, outcome
        self._calls.labels(outcome).inc()

    def received(self, size_bytes: int) -> None:
        self._bytes.inc(size_bytes)

    def set_apart(self, events: int) -> None:
        self._set_apart.inc(events)

    def decoded(self, call: DecodedCall) -> None:
        self._entries.inc(call.entries)
        self._events.inc(call.batch.num_events)
        self._cells.inc(call.batch.num_cells)
        self._left_out.labels("entries_before_start").inc(call.entries_before_start)
        self._left_out.labels("meta_cells").inc(call.meta_cells_skipped)
        self._left_out.labels("events_filtered").inc(call.events_filtered)
