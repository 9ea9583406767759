"""The progress of a plan, for people: what moves, stalls or does not gain, and when it may end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import MoveRecord, PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState, PlanState
from rtolap.fleet.moves.window import PlanMoves, is_stalled
from rtolap.fleet.planning.copy_time import NEEDED_TIMES

TAIL_SHARE = 0.05  # of the moves, that hold up the end


@dataclass(frozen=True)
class MoveStatus:
    """The progress of one active move.

    Attributes:
        left_s: Seconds left at the present pace. None where nothing is copied or nothing gained.
        behind: Producers write to the partition, at `written_bytes_per_s`, as fast as it is copied.
    """

    partition: str
    state: MoveState
    brokers: str
    size_bytes: int
    copied_bytes: int
    bytes_per_s: float
    left_s: int | None
    stalled: bool
    behind: bool
    written_bytes_per_s: int
    reason: str


@dataclass(frozen=True)
class HeldBack:
    """A broker that may have only `moves_max` moves under way because of its produce times."""

    broker: int
    produce_p99_ms: float
    produce_p99_ms_max: float
    moves_max: int

    def __str__(self) -> str:
        allowed = f"at most {self.moves_max} moves at a time" if self.moves_max else "no move begins"
        return (
            f"held back: produce p99 {self.produce_p99_ms:g} ms on broker {self.broker},"
            f" limit {self.produce_p99_ms_max:g}: {allowed}"
        )


@dataclass(frozen=True)
class PlanStatus:
    """The progress of a plan.

    Attributes:
        moved_bytes: Bytes of moves that are done.
        left_bytes: Bytes still to be copied by pending and active moves.
        active: Active moves, the one with most time left first.
        oldest_ms: Time at which the oldest active move entered its state. None without one.
        tail: Partitions still to be moved when nearly all others are. They delay the end.
        expected_end_ms: Time of the end at the present pace, within the hours of the plan. None where it is
            not known.
        throttle_needed_bytes_per_s: Throttle under which copies would gain. None where the plan's throttle
            does not limit them.
        hours_open: Moves may begin now.
        held_back: Brokers that get fewer moves because of their produce times.
        produce_unread: Brokers that the last reading of produce times does not cover.
    """

    record: PlanRecord
    counts: dict[str, int]
    total_bytes: int
    moved_bytes: int
    left_bytes: int
    bytes_per_s: float
    active: tuple[MoveStatus, ...]
    oldest_ms: int | None
    tail: tuple[str, ...]
    expected_end_ms: int | None
    throttle_needed_bytes_per_s: int | None
    hours_open: bool
    held_back: tuple[HeldBack, ...]
    produce_unread: tuple[int, ...]


def plan_status(record: PlanRecord, plan: PlanMoves, now_ms: int, settings: MoverSettings) -> PlanStatus:
    active = [
        _move_status(record, number, plan.moves[number], now_ms, settings) for number in sorted(record.active)
    ]
    active.sort(key=lambda move: (-(move.left_s if move.left_s is not None else 1 << 60), move.partition))
    left = len(active) + record.outcomes.count(".")
    is_tail = 0 < left <= max(1, int(len(plan.moves) * TAIL_SHARE)) and len(plan.moves) > left
    left_shares = _left_shares(record, plan)
    bytes_per_s = sum(move.bytes_per_s for move in active if not move.stalled)
    outcomes = np.frombuffer(record.outcomes.encode(), np.uint8)
    is_running = record.state is PlanState.RUNNING
    return PlanStatus(
        record,
        {str(state): number for state, number in record.counts().items() if number},
        int(plan.copies_bytes.sum()),
        int(plan.copies_bytes[outcomes == ord("d")].sum()),
        int(left_shares @ plan.copies_bytes),
        bytes_per_s,
        tuple(active),
        min((move_record.since_ms for move_record in record.active.values()), default=None),
        tuple(move.partition for move in active) if is_tail else (),
        _expected_end_ms(record, plan, left_shares, bytes_per_s, now_ms),
        _throttle_needed(record, plan),
        record.hours is None or record.hours.hold(now_ms),
        _held_back(record, settings),
        record.produce_latency.unread if is_running and record.produce_latency is not None else (),
    )


def _held_back(record: PlanRecord, settings: MoverSettings) -> tuple[HeldBack, ...]:
    latency = record.produce_latency
    if latency is None or record.state is not PlanState.RUNNING:
        return ()
    return tuple(
        HeldBack(broker, window.p99_ms, latency.p99_ms_max, window.moves_max)
        for broker, window in latency.holding_back(settings.moves_per_broker).items()
    )


def _left_shares(record: PlanRecord, plan: PlanMoves) -> NDArray[np.float64]:
    """Return, for each move, the share of its copies that is still to be made."""
    pending = np.frombuffer(record.outcomes.encode(), np.uint8) == ord(".")
    shares: NDArray[np.float64] = pending.astype(np.float64)
    for number, move_record in record.active.items():
        whole_bytes = int(plan.copies_bytes[number])
        if whole_bytes and move_record.state is not MoveState.CANCELLING:
            left_bytes = (
                whole_bytes - move_record.copied_bytes
                if move_record.left_bytes is None
                else move_record.left_bytes
            )
            shares[number] = max(0, left_bytes) / whole_bytes
    return shares


def _expected_end_ms(
    record: PlanRecord,
    plan: PlanMoves,
    left_shares: NDArray[np.float64],
    bytes_per_s: float,
    now_ms: int,
) -> int | None:
    """Return the time at which all that is left is copied at the present pace.

    Under a throttle the end is no earlier than its busiest broker allows. While no move is active, that is
    all that is known.
    """
    if record.state is not PlanState.RUNNING or any(
        move_record.behind for move_record in record.active.values()
    ):
        return None
    left_bytes = float(left_shares @ plan.copies_bytes)
    work_s = 0.0
    if left_bytes > 0 and bytes_per_s > 0:
        work_s = left_bytes / bytes_per_s
    elif left_bytes > 0 and (record.active or record.rate_bytes_per_s is None):
        return None
    if record.rate_bytes_per_s:
        of_brokers = plan.loads.by_broker(left_shares)
        work_s = max(work_s, float(of_brokers.max(initial=0.0)) / record.rate_bytes_per_s)
    work_ms = math.ceil(work_s * 1000)
    return now_ms + work_ms if record.hours is None else record.hours.after_work(now_ms, work_ms)


def _throttle_needed(record: PlanRecord, plan: PlanMoves) -> int | None:
    """Return the throttle under which the active copies would gain. None where the present one is enough.

    It is the rate of writes to the active partitions, as the busiest broker sends and receives them, and as
    much again for the copies. Other partitions are not listed and do not count.
    """
    rate = record.rate_bytes_per_s
    if rate is None or not any(move_record.behind for move_record in record.active.values()):
        return None
    written: Counter[int] = Counter()
    for number, move_record in record.active.items():
        move = plan.moves[number]
        per_s = math.ceil(move_record.written_bytes_per_s)
        for broker in move.coming():
            written[broker] += per_s
        if move.adding:  # what a leader sends to replicas in sync is not held back, and yet counts
            written[move.before[0]] += per_s * (len(move.before) - 1 + len(move.adding))
    needed = _rounded_up(NEEDED_TIMES * max(written.values()))
    return needed if needed > rate else None


def _rounded_up(value: int) -> int:
    """Round up to two significant digits."""
    unit: int = 10 ** max(0, len(str(value)) - 2)
    return -(-value // unit) * unit


def _move_status(
    record: PlanRecord, number: int, move: PlannedMove, now_ms: int, settings: MoverSettings
) -> MoveStatus:
    move_record = record.active[number]
    stalled = is_stalled(move_record, now_ms, settings)
    return MoveStatus(
        str(move.partition),
        move_record.state,
        f"{_listed(move.before)} → {_listed(move.after)}",
        move.size_bytes,
        move_record.copied_bytes,
        move_record.bytes_per_s,
        _left_s(move_record, move) if not stalled and not move_record.behind else None,
        stalled,
        move_record.behind,
        round(move_record.written_bytes_per_s),
        move_record.reason,
    )


def _left_s(move_record: MoveRecord, move: PlannedMove) -> int | None:
    left_bytes = move_record.left_bytes
    if left_bytes is None:
        left_bytes = max(0, move.size_bytes * len(move.coming()) - move_record.copied_bytes)
    return int(left_bytes / move_record.bytes_per_s) if move_record.bytes_per_s > 0 else None


def _listed(brokers: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in brokers)
