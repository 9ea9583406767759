"""Records of a plan that the mover stores: frozen, JSON. Moves are numbered from 0 in the order of the plan.

A plan of a hundred thousand moves fits one node: a move that is not active is one letter of `outcomes`, and
only active moves have a record.
"""

from __future__ import annotations

import msgspec

from rtolap.fleet.moves.produce_latency import ProduceLatency
from rtolap.fleet.moves.states import (
    FINAL,
    MoveEvent,
    MoveState,
    PlanEvent,
    PlanState,
    move_transition,
    plan_transition,
)

REASONS_MAX = 100
HISTORY_MAX = 50

_LETTERS = {
    MoveState.PENDING: ".",
    MoveState.DONE: "d",
    MoveState.CANCELLED: "c",
    MoveState.FAILED: "f",
}
_ACTIVE = "a"


class Hours(msgspec.Struct, frozen=True):
    """The hours of the day during which moves may begin.

    Attributes:
        first_minute: Minute of the day, UTC, from which moves may begin.
        end_minute: Minute of the day, UTC, at which the hours end.
        undo: Moves that are under way when the hours end are undone. They begin again in the next hours.
    """

    first_minute: int
    end_minute: int
    undo: bool = False

    def hold(self, now_ms: int) -> bool:
        minute = now_ms // 60_000 % 1440
        if self.first_minute <= self.end_minute:
            return self.first_minute <= minute < self.end_minute
        return minute >= self.first_minute or minute < self.end_minute

    def after_work(self, now_ms: int, work_ms: int) -> int:
        """Return the time at which the work would finish, given that it runs only inside these hours."""
        day_ms = 1440 * 60_000
        open_ms = (self.end_minute - self.first_minute) % 1440 * 60_000
        into_ms = (now_ms - self.first_minute * 60_000) % day_ms  # since the hours last began
        left_ms = max(0, open_ms - into_ms)
        if work_ms <= left_ms:
            return now_ms + work_ms
        days, last_ms = divmod(work_ms - left_ms - 1, open_ms)
        return now_ms - into_ms + (days + 1) * day_ms + last_ms + 1


class Throttle(msgspec.Struct, frozen=True):
    """The throttle of a plan, and what stood in its place before.

    Attributes:
        rates: Rates that are set for all brokers, by the name of the setting. Empty: the plan is no longer
            throttled.
        earlier_values: Values that this plan has set, or meant to set, before those.
        former_rates: Rates that somebody else had set.
        former_lists: Lists that topics had before, by topic and setting.
        listed: Numbers of the moves whose replicas topics list.
        is_set: The rates are in force.
    """

    rates: dict[str, str]
    earlier_values: tuple[str, ...] = ()
    former_rates: dict[str, str] = {}
    former_lists: dict[str, dict[str, str]] = {}
    listed: tuple[int, ...] = ()
    is_set: bool = False


class PaceStart(msgspec.Struct, frozen=True):
    """The state of a move when the measurement of its pace began.

    Attributes:
        source_bytes: Size of the leader's replica.
    """

    at_ms: int
    copied_bytes: int
    left_bytes: int
    source_bytes: int


class MoveRecord(msgspec.Struct, frozen=True):
    """The state of an active move.

    Attributes:
        since_ms: Time at which the state was entered.
        progressed_ms: Time of the last look at which the copies had grown.
        copied_bytes: Bytes that brokers and disks had received at that look.
        bytes_per_s: Rate of the copies at that look.
        left_bytes: Bytes that the copies lack. None where the leader does not report its size.
        written_bytes_per_s: Rate at which producers write to the partition meanwhile.
        behind: Producers write as fast as the copies grow, so that the rest does not shrink.
        pace: Start of the current measurement of the pace.
        unclear_ms: Time since which brokers contradict the plan. None where they do not.
        ending: Event that ends the move once a cancel has restored it.
        reason: Why it is cancelled, in words.
    """

    state: MoveState
    since_ms: int
    progressed_ms: int
    copied_bytes: int = 0
    bytes_per_s: float = 0.0
    left_bytes: int | None = None
    written_bytes_per_s: float = 0.0
    behind: bool = False
    pace: PaceStart | None = None
    unclear_ms: int | None = None
    ending: MoveEvent = MoveEvent.RESTORED
    reason: str = ""


class HistoryEntry(msgspec.Struct, frozen=True):
    at_ms: int
    event: PlanEvent
    state: PlanState
    note: str = ""


class PlanRecord(msgspec.Struct, frozen=True):
    """The state of a plan.

    Attributes:
        digest: Digest of the approved plan file.
        outcomes: A letter for each move.
        moves_digest: Digest of the stored moves.
        active: Records of active moves, by number.
        reasons: Why moves failed, by number, for the first hundred.
        next_delete_ms: By broker, the time before which no further cancel may make it delete copies.
        blocked_since_ms: Time since which no move is active and none may begin. None where that is not so.
        produce_latency: Limits by produce times. None where the mover has no such limit.
    """

    plan_id: str
    cluster_id: str
    digest: str
    state: PlanState
    submitted_ms: int
    by: str
    outcomes: str
    moves_digest: str = ""
    rate_bytes_per_s: int | None = None
    hours: Hours | None = None
    throttle: Throttle | None = None
    active: dict[int, MoveRecord] = {}
    reasons: dict[int, str] = {}
    next_delete_ms: dict[int, int] = {}
    blocked_since_ms: int | None = msgspec.field(default=None, name="held_ms")
    produce_latency: ProduceLatency | None = None
    history: tuple[HistoryEntry, ...] = ()

    def move_state(self, number: int) -> MoveState:
        letter = self.outcomes[number]
        if letter == _ACTIVE:
            return self.active[number].state
        return next(state for state, known in _LETTERS.items() if known == letter)

    def pending(self) -> list[int]:
        return [number for number, letter in enumerate(self.outcomes) if letter == "."]

    def counts(self) -> dict[MoveState, int]:
        counted = {state: self.outcomes.count(letter) for state, letter in _LETTERS.items()}
        for record in self.active.values():
            counted[record.state] = counted.get(record.state, 0) + 1
        return counted

    def with_move(self, number: int, event: MoveEvent, now_ms: int, reason: str = "") -> PlanRecord:
        """Return the record after the event. Raises IllegalTransition."""
        state = move_transition(self.move_state(number), event, f"move {number} of plan {self.plan_id}")
        active = {known: record for known, record in self.active.items() if known != number}
        reasons = self.reasons
        letter = _LETTERS.get(state, _ACTIVE)
        if letter == _ACTIVE:
            former = self.active.get(number)
            record = former or MoveRecord(state, now_ms, now_ms)
            active[number] = msgspec.structs.replace(
                record, state=state, since_ms=now_ms, progressed_ms=now_ms, unclear_ms=None, reason=reason
            )
        elif reason and state in FINAL and len(reasons) < REASONS_MAX:
            reasons = {**reasons, number: reason}
        outcomes = self.outcomes[:number] + letter + self.outcomes[number + 1 :]
        return msgspec.structs.replace(self, active=active, outcomes=outcomes, reasons=reasons)

    def cancelling(self, number: int, now_ms: int, ending: MoveEvent, reason: str) -> PlanRecord:
        """Return the record with the move being cancelled. `ending` is the event that ends it once it is
        restored.
        """
        if self.move_state(number) is MoveState.PENDING:
            return self.with_move(number, MoveEvent.CANCEL, now_ms, reason)
        record = self.with_move(number, MoveEvent.CANCEL, now_ms, reason)
        changed = msgspec.structs.replace(record.active[number], ending=ending)
        return record.with_record(number, changed)

    def ending_pending(self, event: MoveEvent) -> PlanRecord:
        """End all moves that have not begun, at once."""
        letter = _LETTERS[move_transition(MoveState.PENDING, event, f"plan {self.plan_id}")]
        return msgspec.structs.replace(self, outcomes=self.outcomes.replace(".", letter))

    def with_record(self, number: int, changed: MoveRecord) -> PlanRecord:
        return msgspec.structs.replace(self, active={**self.active, number: changed})

    def with_plan(self, event: PlanEvent, now_ms: int, note: str = "") -> PlanRecord:
        """Return the record after the event. Raises IllegalTransition."""
        past = ", ".join(f"{entry.event} at {entry.at_ms}" for entry in self.history)
        state = plan_transition(self.state, event, f"plan {self.plan_id}", past)
        entry = HistoryEntry(now_ms, event, state, note)
        return msgspec.structs.replace(self, state=state, history=(*self.history, entry)[-HISTORY_MAX:])
