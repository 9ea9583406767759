"""The standing of what is kept of a plan: how old it is, who of those that it needs is away, what is gone.

What the mover has kept is true as of its last look. A mover that is dead keeps nothing, and one that lives
learns late of a broker that has stopped. So whoever shows a plan asks the brokers as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.look import describe
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.window import PlanMoves
from rtolap.kafka.administration.interface import FleetAdministration

LOOK_AGE_MS_MAX = 30_000  # a mover keeps the time of its looks more often


@dataclass(frozen=True)
class Standing:
    """The facts that may contradict a plan's recorded status.

    Attributes:
        mover: identity of the mover that serves; None where none does.
        trouble: what hinders the mover, "" for nothing.
        looked_ms: time of the last look at the brokers that is kept; None where there is none.
        age_ms: since then; None where there was no look, or the plan has ended.
        brokers_away: ids of brokers that moves which have not ended need, and that do not serve.
        partitions_gone: partitions, as topic:number, that are still to be moved and that there are no more.
    """

    mover: str | None
    trouble: str
    looked_ms: int | None
    age_ms: int | None
    brokers_away: tuple[int, ...]
    partitions_gone: tuple[str, ...]

    @property
    def is_stale(self) -> bool:
        """Tell whether nobody looks: what is kept of moves under way is of another time."""
        return self.mover is None or (self.age_ms is not None and self.age_ms > LOOK_AGE_MS_MAX)


def standing(
    kept: KeptFleet, administration: FleetAdministration, record: PlanRecord, plan: PlanMoves, now_ms: int
) -> Standing:
    """Raises what the store and the brokers raise."""
    told = kept.mover()
    looked_ms = told.looked_ms if told is not None and told.looked_ms else None
    ended = record.state is PlanState.ENDED
    moves = [] if ended else [plan.moves[number] for number in sorted({*record.active, *record.pending()})]
    away: set[int] = set()
    gone: list[str] = []
    if moves:
        serving = {
            broker.broker_id for broker in administration.describe_cluster().brokers if not broker.fenced
        }
        away = {broker for move in moves for broker in (*move.before, *move.after)} - serving
        found = describe(administration, {move.partition for move in moves})
        gone = sorted({str(move.partition) for move in moves if move.partition not in found})
    return Standing(
        kept.working_mover(),
        "" if told is None else told.trouble,
        looked_ms,
        None if ended or looked_ms is None else max(0, now_ms - looked_ms),
        tuple(sorted(away)),
        tuple(gone),
    )
