"""The next steps of the active moves: a function of the stored record and the brokers' state.

Every request follows from a look and may be sent again. A request that was stored and never sent follows once
more from the next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from rtolap.base.errors import NotFound, Refused, RtolapError
from rtolap.fleet.moves.look import Look
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.progress import with_progress
from rtolap.fleet.moves.records import MoveRecord, PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveEvent, MoveState, PlanState
from rtolap.kafka.administration.values import Partition, PartitionDescription, Replica


@dataclass
class Requests:
    """The requests to brokers. Directories are set before reassignments, so that replicas are made in the
    right place.
    """

    log_dirs: dict[Replica, str] = field(default_factory=dict)
    reassignments: dict[Partition, tuple[int, ...] | None] = field(default_factory=dict)
    elections: list[Partition] = field(default_factory=list)


def begin(
    record: PlanRecord, moves: Sequence[PlannedMove], numbers: Sequence[int], now_ms: int
) -> PlanRecord:
    """Store that moves are about to begin. `advance` sends their requests at the next look."""
    for number in numbers:
        record = record.with_move(number, MoveEvent.SUBMIT, now_ms)
    return record


def advance(
    record: PlanRecord,
    moves: Sequence[PlannedMove],
    look: Look,
    now_ms: int,
    settings: MoverSettings,
) -> tuple[PlanRecord, Requests]:
    """Return the record to store, and the requests to send after that."""
    record = _withdrawn(record, now_ms)
    requests = Requests()
    for number in sorted(record.active):
        record = _Move(record, number, moves[number], look, now_ms, settings, requests).advance()
    return record, requests


def refused(
    record: PlanRecord,
    moves: Sequence[PlannedMove],
    outcomes: dict[Partition, RtolapError],
    now_ms: int,
) -> PlanRecord:
    """End moves that Kafka refuses as they are. Requests that it cannot carry out now are sent again."""
    numbers = {moves[number].partition: number for number in record.active}
    for partition, error in outcomes.items():
        number = numbers.get(partition)
        if number is None:
            continue
        if record.active[number].state is MoveState.SUBMITTING and isinstance(error, Refused | NotFound):
            record = record.cancelling(number, now_ms, MoveEvent.GIVEN_UP, str(error))
        else:
            noted = msgspec.structs.replace(record.active[number], reason=str(error))
            record = record.with_record(number, noted)
    return record


def _withdrawn(record: PlanRecord, now_ms: int) -> PlanRecord:
    """Cancel all moves of a cancelled plan, and requeue its active moves once its hours are over."""
    if record.state is PlanState.CANCELLING:
        record = record.ending_pending(MoveEvent.CANCEL)
        ending, reason = MoveEvent.RESTORED, "the plan is cancelled"
    elif record.hours is not None and record.hours.undo and not record.hours.hold(now_ms):
        ending, reason = MoveEvent.REQUEUED, "the hours of the plan are over"
    else:
        return record
    for number, active in record.active.items():
        if active.state is not MoveState.CANCELLING:
            record = record.cancelling(number, now_ms, ending, reason)
        elif active.ending is MoveEvent.REQUEUED and ending is MoveEvent.RESTORED:
            record = record.with_record(number, msgspec.structs.replace(active, ending=ending, reason=reason))
    return record


class _Move:
    """A move at one look."""

    def __init__(
        self,
        record: PlanRecord,
        number: int,
        move: PlannedMove,
        look: Look,
        now_ms: int,
        settings: MoverSettings,
        requests: Requests,
    ) -> None:
        self.record = record
        self.number = number
        self.move = move
        self.look = look
        self.now_ms = now_ms
        self.settings = settings
        self.requests = requests
        self.partition = move.partition
        self.running = look.running.get(self.partition)

    @property
    def move_record(self) -> MoveRecord:
        return self.record.active[self.number]

    def advance(self) -> PlanRecord:
        described = self.look.partitions.get(self.partition)
        if described is None:
            return self._unclear("the partition is gone")
        if self.running is not None and self.running.target != set(self.move.after):
            return self._end(MoveEvent.CHANGED, "somebody else reassigns it")
        if self.move_record.state is MoveState.CANCELLING:
            return self._restore(described)
        return self._go_on(described)

    # -- on the way to what is planned ------------------------------------------------------------------

    def _go_on(self, described: PartitionDescription) -> PlanRecord:
        failure = self._failure()
        if failure is not None:
            self.record = self.record.cancelling(self.number, self.now_ms, MoveEvent.GIVEN_UP, failure)
            return self._restore(described)
        noted = with_progress(self.move_record, self.move, described, self.look, self.now_ms, self.settings)
        self.record = self.record.with_record(self.number, noted)
        replicas = tuple(described.replicas)
        if self.running is not None:
            if self.move_record.state is MoveState.SUBMITTING:
                self.record = self.record.with_move(self.number, MoveEvent.ACCEPTED, self.now_ms)
            self._place()
            return self._clear()
        if replicas == self.move.after:
            if self._place():
                if self.move_record.state is MoveState.SUBMITTING and any(
                    replica in self.look.coming for replica in self.move.wanted_dirs()
                ):
                    self.record = self.record.with_move(self.number, MoveEvent.ACCEPTED, self.now_ms)
                return self._clear()
            return self._lead(described)
        if set(replicas) == set(self.move.after):
            self.requests.reassignments[self.partition] = self.move.after  # brokers are right, order is not
            return self._unclear("its replicas do not take the order of the plan")
        if self.move_record.state is MoveState.SUBMITTING:
            self._place(early=True)
            self.requests.reassignments[self.partition] = self.move.after
            return self._clear()
        return self._unclear("somebody else has cancelled or changed it")

    def _place(self, *, early: bool = False) -> bool:
        """Request log directories, and return True if a replica is not there yet.

        `early`: request them also for replicas that do not exist yet.
        """
        waiting = False
        for replica, path in self.move.wanted_dirs().items():
            placed = self.look.replicas.get(replica)
            if placed is None:
                if early:
                    self.requests.log_dirs[replica] = path
                # of a broker that tells nothing it is not known, and is waited for
                waiting = waiting or replica.broker not in self.look.reporting
            elif placed.path != path:
                waiting = True
                coming = self.look.coming.get(replica)
                if coming is None or coming.path != path:
                    self.requests.log_dirs[replica] = path
        return waiting

    def _lead(self, described: PartitionDescription) -> PlanRecord:
        """Elect the first replica as leader if that is possible within a while, then end the move."""
        first = self.move.after[0]
        able = first in described.in_sync and first in self.look.alive
        since_ms = self.move_record.unclear_ms
        if described.leader == first or not able:
            return self._end(MoveEvent.COMPLETED)
        if since_ms is not None and self.now_ms - since_ms > self.settings.elect_ms:
            return self._end(MoveEvent.COMPLETED)
        self.requests.elections.append(self.partition)
        return self._keep(unclear_ms=self.now_ms if since_ms is None else since_ms)

    def _failure(self) -> str | None:
        """Return the reason why a move cannot go on."""
        for replica, path in self.move.wanted_dirs().items():
            lost = self.look.lost_dir(replica.broker, path)
            if lost is not None:
                return lost
        if self.now_ms - self.move_record.progressed_ms <= self.settings.give_up_ms:
            return None
        gone = [broker for broker in self.move.after if broker not in self.look.alive]
        if gone:
            return f"broker {gone[0]} does not serve"
        return f"nothing was copied for {self.settings.give_up_ms // 1000} s"

    # -- on the way back --------------------------------------------------------------------------------

    def _restore(self, described: PartitionDescription) -> PlanRecord:
        for replica, path in self.move.wanted_dirs().items():
            coming, placed = self.look.coming.get(replica), self.look.replicas.get(replica)
            if coming is not None and coming.path == path and placed is not None:
                self.requests.log_dirs[replica] = placed.path
        if self.running is not None:
            if self._may_delete():
                self.requests.reassignments[self.partition] = None
            return self.record
        if self.requests.log_dirs.keys() & self.move.wanted_dirs().keys():
            return self.record
        silent = self._silent_disks()
        if silent is not None and self.now_ms - self.move_record.since_ms <= self.settings.give_up_ms:
            return self.record
        replicas = tuple(described.replicas)
        if set(replicas) == set(self.move.before) and set(replicas) != set(self.move.after):
            if replicas != self.move.before:
                self.requests.reassignments[self.partition] = self.move.before  # a cancel gives no order
                return self._unclear("its replicas do not take their former order")
            return self._end(self.move_record.ending, silent or self.move_record.reason)
        if set(replicas) == set(self.move.after):
            return self._too_late(replicas)
        return self._unclear("somebody else has changed it")

    def _silent_disks(self) -> str | None:
        """Name a broker that does not report its disks: a move between them may go on when it is back."""
        for broker, path in self.move.coming().items():
            if broker in self.move.before and broker not in self.look.reporting:
                return f"broker {broker} does not report whether its copy to {path} was begun"
        return None

    def _too_late(self, replicas: tuple[int, ...]) -> PlanRecord:
        """End a move whose brokers are those of the plan: it was complete, or only directories and order were
        to change.
        """
        wanted = self.move.wanted_dirs()
        placed = all(
            self.look.replicas[replica].path == path
            for replica, path in wanted.items()
            if replica in self.look.replicas
        )
        if placed and replicas == self.move.after:
            return self._end(MoveEvent.COMPLETED)
        return self._end(self.move_record.ending, self.move_record.reason)

    def _may_delete(self) -> bool:
        """Return True if the cancel may be sent now. Copies are deleted at once, and many deletes together
        slow a disk.
        """
        brokers = [broker for broker in self.move.adding if broker in self.look.alive]
        free_ms = self.record.next_delete_ms
        if any(free_ms.get(broker, 0) > self.now_ms for broker in brokers):
            return False
        later = dict(free_ms)
        for broker in brokers:
            placed = self.look.replicas.get(Replica(self.partition, broker))
            if placed is not None:
                delay_ms = placed.size_bytes * 1000 // self.settings.delete_bytes_per_s
                later[broker] = self.now_ms + delay_ms
        self.record = msgspec.structs.replace(self.record, next_delete_ms=later)
        return True

    # -- what is kept -----------------------------------------------------------------------------------

    def _end(self, event: MoveEvent, reason: str = "") -> PlanRecord:
        self.record = self.record.with_move(self.number, event, self.now_ms, reason)
        return self.record

    def _keep(self, **changes: object) -> PlanRecord:
        changed = msgspec.structs.replace(self.move_record, **changes)
        self.record = self.record.with_record(self.number, changed)
        return self.record

    def _clear(self) -> PlanRecord:
        return self._keep(unclear_ms=None) if self.move_record.unclear_ms is not None else self.record

    def _unclear(self, reason: str) -> PlanRecord:
        """Note that brokers contradict the plan. Brokers learn of changes late, so only a lasting
        contradiction counts.
        """
        since_ms = self.move_record.unclear_ms
        if since_ms is None:
            return self._keep(unclear_ms=self.now_ms)
        if self.now_ms - since_ms <= self.settings.unclear_ms:
            return self.record
        return self._end(MoveEvent.CHANGED, reason)
