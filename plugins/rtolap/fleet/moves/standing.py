"""Compares the stored state of a plan with the brokers: its age, absent brokers, deleted partitions.

The stored state is true as of the mover's last look. A dead mover stores nothing, and a live one learns late
that a broker has stopped. A command that shows a plan therefore queries the brokers as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.fleet.moves.look import describe
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.window import PlanMoves
from rtolap.kafka.administration.interface import FleetAdministration

LOOK_AGE_MS_MAX = 30_000  # a mover keeps the time of its looks more often


@dataclass(frozen=True)
class PlanStanding:
    """The facts that may contradict a plan's stored state.

    Attributes:
        mover: Identity of the mover that serves. None where none does.
        failure: Error of the mover's last step. Empty where it succeeded.
        looked_ms: Time of the last stored look at the brokers. None where there is none.
        age_ms: Time since that look. None where there was no look, or the plan has ended.
        brokers_away: Ids of brokers that unfinished moves need and that do not serve.
        partitions_gone: Partitions, as topic:number, that are still to be moved and no longer exist.
    """

    mover: str | None
    failure: str
    looked_ms: int | None
    age_ms: int | None
    brokers_away: tuple[int, ...]
    partitions_gone: tuple[str, ...]

    @property
    def is_stale(self) -> bool:
        """Return True if no mover looks at the brokers, so that the stored state of active moves is old."""
        return self.mover is None or (self.age_ms is not None and self.age_ms > LOOK_AGE_MS_MAX)


def standing(
    fleet_store: FleetStore,
    administration: FleetAdministration,
    record: PlanRecord,
    plan: PlanMoves,
    now_ms: int,
) -> PlanStanding:
    """Return the facts that may contradict the record. Raises what the store and the brokers raise."""
    mover = fleet_store.mover()
    looked_ms = mover.looked_ms if mover is not None and mover.looked_ms else None
    ended = record.state is PlanState.ENDED
    moves = [] if ended else [plan.moves[number] for number in sorted({*record.active, *record.pending()})]
    away: set[int] = set()
    gone: list[str] = []
    if moves:
        serving = administration.describe_cluster().serving
        away = {broker for move in moves for broker in (*move.before, *move.after)} - serving.keys()
        found = describe(administration, {move.partition for move in moves})
        gone = sorted({str(move.partition) for move in moves if move.partition not in found})
    return PlanStanding(
        fleet_store.working_mover(),
        "" if mover is None else mover.failure,
        looked_ms,
        None if ended or looked_ms is None else max(0, now_ms - looked_ms),
        tuple(sorted(away)),
        tuple(gone),
    )
