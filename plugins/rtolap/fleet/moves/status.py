"""The progress of a plan, for people: what moves, what stalls, when it may end, and who is last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState
from rtolap.fleet.moves.window import is_stalled

TAIL_SHARE = 0.05  # of the moves, that hold up the end


@dataclass(frozen=True)
class MoveStatus:
    """left_s: at the present pace, None where nothing is copied."""

    partition: str
    state: MoveState
    brokers: str
    size_bytes: int
    copied_bytes: int
    bytes_per_s: float
    left_s: int | None
    stalled: bool
    reason: str


@dataclass(frozen=True)
class PlanStatus:
    """moved_bytes: of moves that are done. active: the longest to go first. tail: partitions that are still
    to be moved when nearly all others are; they hold up the end."""

    record: PlanRecord
    counts: dict[str, int]
    total_bytes: int
    moved_bytes: int
    active: tuple[MoveStatus, ...]
    tail: tuple[str, ...]


def plan_status(
    record: PlanRecord, moves: Sequence[PlannedMove], now_ms: int, settings: MoverSettings
) -> PlanStatus:
    active = [
        _move_status(record, number, moves[number], now_ms, settings) for number in sorted(record.active)
    ]
    active.sort(key=lambda move: (-(move.left_s if move.left_s is not None else 1 << 60), move.partition))
    left = len(active) + record.outcomes.count(".")
    is_tail = 0 < left <= max(1, int(len(moves) * TAIL_SHARE)) and len(moves) > left
    return PlanStatus(
        record,
        {str(state): number for state, number in record.counts().items() if number},
        sum(_copied_bytes(move) for move in moves),
        sum(
            _copied_bytes(move) for move, letter in zip(moves, record.outcomes, strict=True) if letter == "d"
        ),
        tuple(active),
        tuple(move.partition for move in active) if is_tail else (),
    )


def _move_status(
    record: PlanRecord, number: int, move: PlannedMove, now_ms: int, settings: MoverSettings
) -> MoveStatus:
    kept = record.active[number]
    left_bytes = max(0, move.size_bytes * len(move.after) - kept.copied_bytes)
    stalled = is_stalled(kept, now_ms, settings)
    return MoveStatus(
        str(move.partition),
        kept.state,
        f"{_listed(move.before)} → {_listed(move.after)}",
        move.size_bytes,
        kept.copied_bytes,
        kept.bytes_per_s,
        int(left_bytes / kept.bytes_per_s) if kept.bytes_per_s > 0 and not stalled else None,
        stalled,
        kept.reason,
    )


def _copied_bytes(move: PlannedMove) -> int:
    return move.size_bytes * len(move.coming())


def _listed(brokers: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in brokers)
