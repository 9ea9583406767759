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
        counter = self.registry.counter
        self._accepted = counter("connections_accepted", "Connections that were accepted.")
        self._closed = counter("connections_closed", "Connections that ended, by reason.", ("reason",))
        self._calls = counter("calls", "Calls, by outcome.", ("outcome",))
        self._bytes = counter("received_bytes", "Bytes of frames that were read whole.")
        self._entries = counter("entries", "WAL entries in calls that could be read.")
        self._events = counter("events", "Events that were handed to delivery.")
        self._cells = counter("cells", "Cells of these events.")
        self._left_out = counter("left_out", "Entries, cells and events left out, by reason.", ("reason",))
        self.call_seconds = self.registry.histogram(
            "call_seconds", "A call of ReplicateWALEntry, from its first byte to its answer."
        )
        self._set_apart = counter("set_apart_events", "Events that HBase's logs cannot hold, set apart.")
        self._open = 0
        for reason in CLOSED_REASONS:
            self._closed.labels(reason)
        for outcome in CALL_OUTCOMES:
            self._calls.labels(outcome)

    @property
    def open_connections(self) -> int:
        return self._open

    def follow(self, budget: FrameBudget) -> None:
        def sample() -> Iterator[Family]:
            gauge = self.registry.gauge_of
            yield gauge("connections", "Connections that are open.", self._open)
            yield gauge("in_flight_bytes", "Bytes of frames that are read or worked on.", budget.taken_bytes)
            yield gauge("waiting_frames", "Frames that wait until bytes are free.", budget.waiting)

        self.registry.sampled(sample)

    def accepted(self) -> None:
        self._open += 1
        self._accepted.inc()

    def closed(self, reason: str) -> None:
        assert reason in CLOSED_REASONS, reason
        self._open -= 1
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
