"""The mover of one Kafka cluster: the plan that runs, its throttles, its moves.

A step, and what a crash after each part of it leaves behind:

    1. answer requests              the next step answers them
    2. keep which throttles follow, or which another request has changed them to
                                    nothing is set yet
    3. set them, list the replicas of moves under way and no others, keep that
                                    they may be set though nothing says so: set again, removed at the end
    4. look at the brokers
    5. keep what follows from it, and which moves begin
                                    nobody was asked: the next look asks
    6. ask the brokers for moves that 3 has listed
                                    asked again where it does not show
    7. all moves have ended: keep that throttles are to go
    8. remove them, keep that the plan has ended
                                    removed again, which changes nothing
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import NotLeader, RtolapError
from rtolap.fleet.moves.advance import Requests, advance, begin, refused
from rtolap.fleet.moves.answering import Answering
from rtolap.fleet.moves.look import Look, describe, look_at
from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.produce_latency import ProduceLatency, ProduceReader, after_reading
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveEvent, PlanEvent, PlanState
from rtolap.fleet.moves.store import FleetStore, MoverRecord, StoredPlan
from rtolap.fleet.moves.throttles import (
    HALT_BYTES_PER_S,
    changed_throttle,
    is_halted,
    listed_moves,
    plan_throttle,
    remove_throttle,
    set_throttle,
)
from rtolap.fleet.moves.window import PlanMoves, choose, going_moves, lost
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import Partition
from rtolap.metadata.store import Check

_log = logging.getLogger(__name__)
_PRUNE_EVERY = 1000


@dataclass(frozen=True)
class _LoadedPlan:
    plan_id: str
    plan: PlanMoves


class Mover:
    """Carries out plans while it has the lease.

    `fence` returns the path of the node that exists while this mover has the lease, or None. `stopping` ends
    `run`, as `stop` does. `produce` is read where the settings have a limit for it.
    """

    def __init__(
        self,
        administration: FleetAdministration,
        fleet_store: FleetStore,
        fence: Callable[[], str | None],
        clock: Clock,
        token: str,
        *,
        identity: str = "mover",
        settings: MoverSettings | None = None,
        metrics: MoverMetrics | None = None,
        stopping: threading.Event | None = None,
        produce: ProduceReader | None = None,
    ) -> None:
        self._administration = administration
        self._fleet_store = fleet_store
        self._fence = fence
        self._clock = clock
        self._identity = identity
        self._settings = settings or MoverSettings()
        self._metrics = metrics or MoverMetrics(clock, self._settings)
        self._answering = Answering(
            administration, fleet_store, clock, token, self._lease, self._moves_of, self._metrics
        )
        self._stopping = stopping or threading.Event()
        self._produce = produce
        self._produce_read_ms: int | None = None
        self._loaded: _LoadedPlan | None = None
        self._reported: MoverRecord | None = None
        self._steps = 0

    # -- the process ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run steps until `stop`. A failed step is reported and repeated; nothing is lost."""
        while not self._stopping.is_set():
            at_once = False
            try:
                at_once = self.step()
                self.report("")
            except RtolapError as error:
                _log.warning("the step failed and is tried again: %s", error)
                self._metrics.failed(error.code)
                self._try_to_report(str(error))
            if not at_once:
                self._stopping.wait(self._settings.look_every_s)

    def stop(self) -> None:
        self._stopping.set()

    def step(self) -> bool:
        """Run a round, and return True if there is more to do at once."""
        if self._fence() is None:
            self._loaded = None
            self._answering.forget()
            self._metrics.stand_by()
            return False
        self._steps += 1
        if self._steps % _PRUNE_EVERY == 0:
            self._fleet_store.prune(self._lease())
        self._answering.answer_all()
        stored = self._fleet_store.current()
        at_once = stored is not None and self._work(stored)
        if stored is None:
            self._metrics.idle()
        return at_once

    def _lease(self) -> str:
        fence = self._fence()
        if fence is None:
            raise NotLeader("another mover has the lease")
        return fence

    def report(self, failure: str) -> None:
        """Store the failure of the last step, and every few seconds the time of the last look."""
        fence = self._fence()
        if fence is None:
            self._reported = None
            return
        former, now_ms = self._reported, self._clock.now_ms()
        looked_ms = 0 if former is None else former.looked_ms
        is_recent = 0 <= now_ms - looked_ms < self._settings.report_every_ms  # negative: the clock was set
        if not failure and not is_recent:
            looked_ms = now_ms
        same = former is not None and former.failure == failure
        since_ms = former.since_ms if former is not None and same else now_ms
        reported = MoverRecord(self._identity, since_ms, failure, looked_ms)
        if reported != former:
            self._fleet_store.write_mover(reported, fence)
            self._reported = reported

    def _try_to_report(self, failure: str) -> None:
        try:
            self.report(failure)
        except RtolapError as error:
            _log.warning("the failure cannot be stored: %s", error)

    # -- the plan ---------------------------------------------------------------------------------------

    def _load(self, record: PlanRecord) -> PlanMoves:
        if self._loaded is None or self._loaded.plan_id != record.plan_id:
            moves = self._fleet_store.read_moves(record.plan_id, record.moves_digest)
            self._loaded = _LoadedPlan(record.plan_id, PlanMoves.of(moves))
        return self._loaded.plan

    def _moves_of(self, record: PlanRecord) -> Sequence[PlannedMove]:
        return self._load(record).moves

    def _work(self, stored: StoredPlan) -> bool:
        plan = self._load(stored.record)
        if stored.record.state is PlanState.QUEUED:
            self._start(stored, plan)
            return True
        if stored.record.state is PlanState.RELEASING:
            self._release(stored, plan)
            return False
        if stored.record.state is PlanState.CANCELLING and not is_halted(stored.record.throttle):
            # copies wait to be cancelled: the less is there, the less is deleted
            throttle = changed_throttle(
                self._administration, plan.moves, stored.record.throttle, HALT_BYTES_PER_S
            )
            stored = self._save(stored, msgspec.structs.replace(stored.record, throttle=throttle))
        return self._move(self._with_throttle(stored, plan), plan)

    def _start(self, stored: StoredPlan, plan: PlanMoves) -> None:
        record = stored.record
        if record.rate_bytes_per_s is not None:
            throttle = plan_throttle(self._administration, plan.moves, record.rate_bytes_per_s)
            record = msgspec.structs.replace(record, throttle=throttle)
        self._fleet_store.save(
            record.with_plan(PlanEvent.START, self._clock.now_ms()), stored.version, self._lease()
        )

    def _with_throttle(self, stored: StoredPlan, plan: PlanMoves) -> StoredPlan:
        """Throttle the replicas of active moves, and no others."""
        throttle = stored.record.throttle
        if throttle is None:
            return stored
        numbers = listed_moves(throttle, plan.moves, stored.record.active)
        if throttle.is_set and throttle.listed == numbers:
            return stored
        self._lease()
        throttle = set_throttle(self._administration, plan.moves, throttle, numbers)
        return self._save(stored, msgspec.structs.replace(stored.record, throttle=throttle))

    def _move(self, stored: StoredPlan, plan: PlanMoves) -> bool:
        now_ms = self._clock.now_ms()
        look = look_at(
            self._administration, [plan.moves[number].partition for number in stored.record.active]
        )
        record, requests = advance(stored.record, plan.moves, look, now_ms, self._settings)
        record = self._with_produce_latency(record, plan, look, now_ms)
        record, begun = self._begin(record, plan, look, now_ms)
        stored = self._save(stored, record)
        outcomes = self._ask(requests)
        record = refused(stored.record, plan.moves, outcomes, now_ms)
        left = record.state is not PlanState.CANCELLING and "." in record.outcomes
        if not record.active and not left:
            record = record.with_plan(PlanEvent.MOVES_ENDED, now_ms)
        self._save(stored, record)
        self._metrics.show(record, plan)
        return begun or record.state is PlanState.RELEASING

    def _with_produce_latency(
        self, record: PlanRecord, plan: PlanMoves, look: Look, now_ms: int
    ) -> PlanRecord:
        """Return the record with the produce latency of the last reading.

        A mover without a limit removes a latency that another mover has left.
        """
        limit_ms = self._settings.produce_p99_ms_max
        if self._produce is None or limit_ms is None:
            return msgspec.structs.replace(record, produce_latency=None)
        latency = record.produce_latency or ProduceLatency(limit_ms)
        latency = msgspec.structs.replace(latency, p99_ms_max=limit_ms)
        last_ms = self._produce_read_ms
        due = last_ms is None or not 0 <= now_ms - last_ms < self._settings.produce_every_ms
        if due and record.state is PlanState.RUNNING:
            reading = self._produce.read(now_ms)
            self._produce_read_ms = now_ms
            if reading is not None:
                going = going_moves(record, plan.moves, now_ms, self._settings)
                alive = frozenset(look.alive)
                latency = after_reading(latency, reading, alive, going, self._settings.moves_per_broker)
        return msgspec.structs.replace(record, produce_latency=latency)

    def _begin(self, record: PlanRecord, plan: PlanMoves, look: Look, now_ms: int) -> tuple[PlanRecord, bool]:
        """Begin moves, and return True if any has begun. Gives the rest up where none is active and none can
        begin.
        """
        if record.state is not PlanState.RUNNING or (record.hours and not record.hours.hold(now_ms)):
            return record, False
        for number, reason in lost(record, plan, look).items():
            record = record.with_move(number, MoveEvent.GIVEN_UP, now_ms, reason)
        numbers = choose(record, plan, look, now_ms, self._settings)
        if numbers:
            found = describe(self._administration, [plan.moves[number].partition for number in numbers])
            as_planned = []
            for number in numbers:
                move = plan.moves[number]
                described = found.get(move.partition)
                now = set() if described is None else set(described.replicas)
                if now in (set(move.before), set(move.after)):
                    as_planned.append(number)
                else:
                    reason = "it is not where the plan takes it to be"
                    record = record.with_move(number, MoveEvent.CHANGED, now_ms, reason)
            record = begin(record, plan.moves, as_planned, now_ms)
            return msgspec.structs.replace(record, blocked_since_ms=None), True
        latency = record.produce_latency
        held_back = latency is not None and latency.holding_back(1)
        if record.active or held_back or "." not in record.outcomes:
            return msgspec.structs.replace(record, blocked_since_ms=None), False
        blocked_since_ms = record.blocked_since_ms if record.blocked_since_ms is not None else now_ms
        if now_ms - blocked_since_ms > self._settings.give_up_ms:
            record = self._give_up(record, plan, look)
        return msgspec.structs.replace(record, blocked_since_ms=blocked_since_ms), False

    def _give_up(self, record: PlanRecord, plan: PlanMoves, look: Look) -> PlanRecord:
        reasons = dict(record.reasons)
        for number in record.pending()[:100]:
            gone = [broker for broker in plan.moves[number].after if broker not in look.alive]
            reasons[number] = f"broker {gone[0]} does not serve" if gone else "there is no room for it"
        record = record.ending_pending(MoveEvent.GIVEN_UP)
        return msgspec.structs.replace(record, reasons=dict(sorted(reasons.items())[:100]))

    def _ask(self, requests: Requests) -> dict[Partition, RtolapError]:
        if requests.log_dirs:
            self._lease()
            # a replica that is still to be made cannot take a directory everywhere: the next look tells
            self._administration.move_log_dirs(requests.log_dirs)
        outcomes: dict[Partition, RtolapError] = {}
        if requests.reassignments:
            self._lease()
            outcomes = self._administration.reassign(requests.reassignments)
        if requests.elections:
            self._lease()
            self._administration.elect_preferred_leaders(requests.elections)
        return outcomes

    def _release(self, stored: StoredPlan, plan: PlanMoves) -> None:
        if stored.record.throttle is not None:
            self._lease()
            remove_throttle(self._administration, plan.moves, stored.record.throttle)
        record = stored.record.with_plan(PlanEvent.RELEASED, self._clock.now_ms())
        self._fleet_store.store.commit(
            [
                Check(self._lease(), -1),
                self._fleet_store.put_plan(record, stored.version),
                self._fleet_store.end_plan(),
            ]
        )
        self._loaded = None
        counts = {str(state): number for state, number in record.counts().items() if number}
        _log.info("plan %s has ended: %s", record.plan_id, counts)

    def _save(self, stored: StoredPlan, record: PlanRecord) -> StoredPlan:
        if record == stored.record:
            return stored
        return StoredPlan(record, self._fleet_store.save(record, stored.version, self._lease()))
