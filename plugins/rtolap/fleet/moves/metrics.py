"""The Prometheus metrics of a mover: `rtolap_fleet_mover_…`.

A scrape computes the progress of the plan from the record that the last step has stored. A mover on standby
shows no plan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.metrics import Family, Metrics
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState, PlanState
from rtolap.fleet.moves.status import PlanStatus, plan_status
from rtolap.fleet.moves.window import PlanMoves


@dataclass(frozen=True)
class _Shown:
    record: PlanRecord
    plan: PlanMoves


class MoverMetrics:
    """Metrics of the mover. They are thread-safe: steps write and scrapes read."""

    def __init__(self, clock: Clock, settings: MoverSettings) -> None:
        self.registry = Metrics("fleet_mover")
        self._clock = clock
        self._settings = settings
        self._lock = threading.Lock()
        self._leading = False
        self._looked_ms: int | None = None
        self._shown: _Shown | None = None
        self._errors = self.registry.counter("errors")
        self._requests = self.registry.counter("requests")
        self.registry.sampled(self._sample)

    def stand_by(self) -> None:
        """Show that another mover has the lease."""
        self._set(None, leading=False)

    def idle(self) -> None:
        self._set(None, leading=True)

    def show(self, record: PlanRecord, plan: PlanMoves) -> None:
        self._set(_Shown(record, plan), leading=True)

    def failed(self, code: str) -> None:
        self._errors.labels(code).inc()

    def answered(self, kind: RequestKind, code: str) -> None:
        self._requests.labels(kind.value, code or "taken").inc()

    def _set(self, shown: _Shown | None, *, leading: bool) -> None:
        with self._lock:
            self._shown, self._leading = shown, leading
            self._looked_ms = self._clock.now_ms()

    def _sample(self) -> Iterator[Family]:
        with self._lock:
            shown, leading, looked_ms = self._shown, self._leading, self._looked_ms
        yield self.registry.value("leading", leading)
        if looked_ms is not None:
            yield self.registry.value("stepped_seconds", looked_ms / 1000)
        status = None
        if shown is not None:
            status = plan_status(shown.record, shown.plan, self._clock.now_ms(), self._settings)
        yield from self._states(status)
        if status is not None:
            yield from self._of_plan(status)

    def _states(self, status: PlanStatus | None) -> Iterator[Family]:
        found = None if status is None else status.record.state
        yield self.registry.family("plan_state", [((state.value,), found is state) for state in PlanState])
        counts = {} if status is None else status.counts
        moves = [((state.value,), counts.get(state.value, 0)) for state in MoveState]
        yield self.registry.family("moves", moves)

    def _of_plan(self, status: PlanStatus) -> Iterator[Family]:
        value, now_ms = self.registry.value, self._clock.now_ms()
        yield value("left_bytes", status.left_bytes)
        yield value("moved_bytes", status.moved_bytes)
        yield value("copied_bytes_per_second", status.bytes_per_s)
        if status.expected_end_ms is not None:
            yield value("expected_end_seconds", status.expected_end_ms / 1000)
        age_s = 0.0 if status.oldest_ms is None else (now_ms - status.oldest_ms) / 1000
        yield value("oldest_move_seconds", age_s)
        stalled = sum(move.stalled for move in status.active)
        behind = sum(move.behind for move in status.active)
        slow = [(("stalled",), stalled), (("behind",), behind), (("tail",), len(status.tail))]
        yield self.registry.family("slow_moves", slow)
        if status.record.rate_bytes_per_s is not None:
            yield value("throttle_bytes_per_second", status.record.rate_bytes_per_s)
        if status.throttle_needed_bytes_per_s is not None:
            yield value("throttle_needed_bytes_per_second", status.throttle_needed_bytes_per_s)
        yield from self._produce(status)
        yield value("window_open", status.hours_open)

    def _produce(self, status: PlanStatus) -> Iterator[Family]:
        latency = status.record.produce_latency
        if latency is None:
            return
        yield self.registry.value("produce_p99_max_seconds", latency.p99_ms_max / 1000)
        windows = [((str(broker),), window) for broker, window in latency.windows.items()]
        p99_s = [(broker, window.p99_ms / 1000) for broker, window in windows]
        yield self.registry.family("produce_p99_seconds", p99_s)
        yield self.registry.family("broker_moves_max", [(broker, it.moves_max) for broker, it in windows])
        yield self.registry.value("produce_unread_brokers", len(latency.unread))
