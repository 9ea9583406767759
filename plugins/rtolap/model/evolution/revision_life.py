"""The life of an older revision of a cube, once another one follows: one pure table.

      EXHAUST               AGE_OUT                DROP
    READING ───────▶ ENDED ─────────▶ RETIRED ────────▶ DROPPED
       ▲               │
       └─── RESUME ────┘

READING takes late events. ENDED accepts none any more: nobody reads the topic for it, and statements read its
history. RETIRED has no segment beyond its purge horizon: statements leave it out. DROPPED is gone.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from rtolap.base.transitions import step
from rtolap.model.cube import Cube


class RevisionState(StrEnum):
    READING = "READING"
    ENDED = "ENDED"
    RETIRED = "RETIRED"
    DROPPED = "DROPPED"


class RevisionEvent(StrEnum):
    EXHAUST = "EXHAUST"
    RESUME = "RESUME"
    AGE_OUT = "AGE_OUT"
    DROP = "DROP"


class RevisionAction(StrEnum):
    RELEASE_PARTITIONS = "RELEASE_PARTITIONS"
    ASSIGN_PARTITIONS = "ASSIGN_PARTITIONS"
    LEAVE_STATEMENTS = "LEAVE_STATEMENTS"
    DROP_CUBE = "DROP_CUBE"


class RevisionStep(NamedTuple):
    state: RevisionState
    action: RevisionAction


_S, _E, _A = RevisionState, RevisionEvent, RevisionAction

TRANSITIONS: dict[tuple[RevisionState, RevisionEvent], RevisionStep] = {
    (_S.READING, _E.EXHAUST): RevisionStep(_S.ENDED, _A.RELEASE_PARTITIONS),
    (_S.ENDED, _E.RESUME): RevisionStep(_S.READING, _A.ASSIGN_PARTITIONS),
    (_S.ENDED, _E.AGE_OUT): RevisionStep(_S.RETIRED, _A.LEAVE_STATEMENTS),
    (_S.RETIRED, _E.DROP): RevisionStep(_S.DROPPED, _A.DROP_CUBE),
}


def transition(state: RevisionState, event: RevisionEvent, *, subject: str) -> RevisionStep:
    """Return the next state, and what leads there. Raises IllegalTransition naming what is legal."""
    return step(TRANSITIONS, state, event, subject=subject)


class Standing(NamedTuple):
    """The facts of a revision that decide whether it ends.

    Attributes:
        ended: its control says so.
        accepts_nothing: see `accepts_nothing`.
        needs_receivers: some segment beyond the horizon is not wholly in history or in staged parts.
        is_purged: no segment of its time lies beyond the horizon.
        is_oldest: no revision before it stands.
        is_held: something may still read its files: a statement that began before, or a publication.
    """

    ended: bool
    retired: bool
    accepts_nothing: bool
    needs_receivers: bool
    is_purged: bool
    is_oldest: bool
    is_held: bool

    @property
    def state(self) -> RevisionState:
        if self.retired:
            return RevisionState.RETIRED
        return RevisionState.ENDED if self.ended else RevisionState.READING


def due_event(standing: Standing) -> RevisionEvent | None:
    """Return what happens to the revision next; None: nothing."""
    match standing.state:
        case RevisionState.READING:
            if standing.accepts_nothing and not standing.needs_receivers:
                return RevisionEvent.EXHAUST
        case RevisionState.ENDED:
            if standing.needs_receivers or not standing.accepts_nothing:
                return RevisionEvent.RESUME
            if standing.is_purged and standing.is_oldest:
                return RevisionEvent.AGE_OUT
        case RevisionState.RETIRED:
            if not standing.is_held:
                return RevisionEvent.DROP
    return None


def is_purged(until_ms: int, horizon_ms: int | None) -> bool:
    """Return True if all segments below `until_ms` are purged for ever."""
    return horizon_ms is not None and horizon_ms >= until_ms


def accepts_nothing(cube: Cube, until_ms: int, horizon_ms: int | None, built: Collection[int]) -> bool:
    """Return True if no event before `until_ms` can be in an answer beside those in history.

    An event below the purge horizon never is. Beyond it, one that is merged is accepted however late it
    comes, so time alone ends nothing. One that is dropped where it is late is accepted until the first
    version of its segment stands; the segment of a window without an event has none.

    Args:
        until_ms: where the next revision begins, a start of segments of both.
        built: starts of segments of which a version is READY.
    """
    if is_purged(until_ms, horizon_ms):
        return True
    if cube.late.policy != "drop":
        return False
    window_ms = cube.segment.window_ms
    since_ms = None if cube.revision is None else cube.revision.reads_from_ms
    begins = [at for at in (since_ms, horizon_ms) if at is not None]
    if not begins:
        return False  # an event of any time before may come
    starts = range(max(begins) // window_ms * window_ms, until_ms, window_ms)
    return len(built) >= len(starts) and all(start in built for start in starts)
