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
        self._errors = self.registry.counter("errors", "Steps that failed and are tried again.", ("code",))
        self._requests = self.registry.counter(
            "requests", "Requests that were answered: taken, or the code of the error.", ("kind", "outcome")
        )
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
        gauge = self.registry.gauge_of
        yield gauge("leading", "1 while it has the lease of the cluster.", int(leading))
        if looked_ms is not None:
            yield gauge("stepped_seconds", "When a step last ended well, since 1970.", looked_ms / 1000)
        status = None
        if shown is not None:
            status = plan_status(shown.record, shown.plan, self._clock.now_ms(), self._settings)
        yield from self._states(status)
        if status is not None:
            yield from self._of_plan(status)

    def _states(self, status: PlanStatus | None) -> Iterator[Family]:
        family = self.registry.gauge_family
        found = None if status is None else status.record.state
        plans = [((state.value,), int(found is state)) for state in PlanState]
        yield family("plan_state", "1 for the state of the plan that is carried out.", ["state"], plans)
        counts = {} if status is None else status.counts
        moves = [((state.value,), counts.get(state.value, 0)) for state in MoveState]
        yield family("moves", "Moves of that plan by state.", ["state"], moves)

    def _of_plan(self, status: PlanStatus) -> Iterator[Family]:
        gauge, now_ms = self.registry.gauge_of, self._clock.now_ms()
        yield gauge("left_bytes", "To be copied of moves that are pending or under way.", status.left_bytes)
        yield gauge("moved_bytes", "Copied by moves that are done.", status.moved_bytes)
        yield gauge("copied_bytes_per_second", "Of moves that go on, at the last look.", status.bytes_per_s)
        if status.expected_end_ms is not None:
            yield gauge(
                "expected_end_seconds", "At the present pace, since 1970.", status.expected_end_ms / 1000
            )
        age_s = 0.0 if status.oldest_ms is None else (now_ms - status.oldest_ms) / 1000
        yield gauge("oldest_move_seconds", "For so long the oldest move is under way.", age_s)
        stalled = sum(move.stalled for move in status.active)
        behind = sum(move.behind for move in status.active)
        yield self.registry.gauge_family(
            "slow_moves",
            "Moves that copy nothing, that do not gain on what is written, or that the end waits for.",
            ["reason"],
            [(["stalled"], stalled), (["behind"], behind), (["tail"], len(status.tail))],
        )
        if status.record.rate_bytes_per_s is not None:
            yield gauge(
                "throttle_bytes_per_second",
                "What each broker sends and takes at most.",
                status.record.rate_bytes_per_s,
            )
        if status.throttle_needed_bytes_per_s is not None:
            yield gauge(
                "throttle_needed_bytes_per_second",
                "The throttle under which moves that are behind would gain.",
                status.throttle_needed_bytes_per_s,
            )
        yield from self._produce(status)
        yield gauge(
            "window_open", "1 while moves may begin by the hours of the plan.", int(status.hours_open)
        )

    def _produce(self, status: PlanStatus) -> Iterator[Family]:
        latency = status.record.produce_latency
        if latency is None:
            return
        yield self.registry.gauge_of(
            "produce_p99_max_seconds",
            "A broker whose writes take longer gets fewer moves.",
            latency.p99_ms_max / 1000,
        )
        p99 = self.registry.gauge_family("produce_p99_seconds", "Of writes, as last read.", ["broker"])
        most = self.registry.gauge_family(
            "broker_moves_max", "Moves that a broker may have under way by its writes.", ["broker"]
        )
        for broker, window in latency.windows.items():
            p99.add_metric([str(broker)], window.p99_ms / 1000)
            most.add_metric([str(broker)], window.moves_max)
        yield p99
        yield most
        yield self.registry.gauge_of(
            "produce_unread_brokers",
            "Brokers that serve and whose writes the last reading does not tell of.",
            len(latency.unread),
        )
