"""The lives of a move and of a plan: two pure tables.

A move is what a plan asks for one partition: its brokers, their order, their log directories.

             SUBMIT                ACCEPTED              COMPLETED
    PENDING ─────────▶ SUBMITTING ───────────▶ COPYING ─────────────▶ DONE
      │ ▲                  │  │                  │  │                  ▲
      │ │ REQUEUED         │  └── CHANGED ───────┼──┴──▶ FAILED        │ COMPLETED: it was too late to cancel
      │ │                  │       CANCEL        │          ▲          │
      │ └──────────────────┴─────▶ CANCELLING ◀──┘          │          │
      │                              │ │ └──── GIVEN_UP ────┘          │
      │ CANCEL                       │ └───────────────────────────────┘
      └───────────▶ CANCELLED ◀──────┘ RESTORED

SUBMITTING is kept before Kafka is asked, so that whoever follows asks again; COPYING means that Kafka has
taken it. CHANGED: somebody else has changed the partition, or it is gone; what they did stays. GIVEN_UP: it
was undone because it could not go on. REQUEUED: it was undone because the hours of the plan are over.

A plan:

            START            PAUSE
    QUEUED ───────▶ RUNNING ───────▶ PAUSED       RUNNING and PAUSED: CANCEL leads to CANCELLING
      │                │   ◀─────── RESUME        QUEUED, RUNNING and PAUSED: THROTTLE leads back
      │ CANCEL         │ MOVES_ENDED: from RUNNING, PAUSED and CANCELLING
      ▼                ▼              RELEASED
    ENDED         RELEASING ─────────────────────▶ ENDED

START keeps which throttles will be set; they are set while it is RUNNING, before the first move, and
RELEASING ends only when they are gone. THROTTLE keeps others in their place, which are set before the next
look.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class MoveState(StrEnum):
    PENDING = "pending"
    SUBMITTING = "submitting"
    COPYING = "copying"
    CANCELLING = "cancelling"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class MoveEvent(StrEnum):
    SUBMIT = "submit"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    CANCEL = "cancel"
    CHANGED = "changed"
    RESTORED = "restored"
    GIVEN_UP = "given_up"
    REQUEUED = "requeued"


_M, _E = MoveState, MoveEvent

MOVES: dict[tuple[MoveState, MoveEvent], MoveState] = {
    (_M.PENDING, _E.SUBMIT): _M.SUBMITTING,
    (_M.PENDING, _E.CANCEL): _M.CANCELLED,
    (_M.PENDING, _E.CHANGED): _M.FAILED,
    (_M.PENDING, _E.GIVEN_UP): _M.FAILED,
    (_M.SUBMITTING, _E.ACCEPTED): _M.COPYING,
    (_M.SUBMITTING, _E.COMPLETED): _M.DONE,
    (_M.SUBMITTING, _E.CANCEL): _M.CANCELLING,
    (_M.SUBMITTING, _E.CHANGED): _M.FAILED,
    (_M.COPYING, _E.COMPLETED): _M.DONE,
    (_M.COPYING, _E.CANCEL): _M.CANCELLING,
    (_M.COPYING, _E.CHANGED): _M.FAILED,
    (_M.CANCELLING, _E.RESTORED): _M.CANCELLED,
    (_M.CANCELLING, _E.GIVEN_UP): _M.FAILED,
    (_M.CANCELLING, _E.REQUEUED): _M.PENDING,
    (_M.CANCELLING, _E.COMPLETED): _M.DONE,
    (_M.CANCELLING, _E.CHANGED): _M.FAILED,
}

FINAL = frozenset((_M.DONE, _M.CANCELLED, _M.FAILED))


class PlanState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    RELEASING = "releasing"
    ENDED = "ended"


class PlanEvent(StrEnum):
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    THROTTLE = "throttle"
    MOVES_ENDED = "moves_ended"
    RELEASED = "released"


_P, _V = PlanState, PlanEvent

PLANS: dict[tuple[PlanState, PlanEvent], PlanState] = {
    (_P.QUEUED, _V.START): _P.RUNNING,
    (_P.QUEUED, _V.CANCEL): _P.ENDED,
    (_P.QUEUED, _V.THROTTLE): _P.QUEUED,
    (_P.RUNNING, _V.PAUSE): _P.PAUSED,
    (_P.RUNNING, _V.CANCEL): _P.CANCELLING,
    (_P.RUNNING, _V.THROTTLE): _P.RUNNING,
    (_P.RUNNING, _V.MOVES_ENDED): _P.RELEASING,
    (_P.PAUSED, _V.RESUME): _P.RUNNING,
    (_P.PAUSED, _V.CANCEL): _P.CANCELLING,
    (_P.PAUSED, _V.THROTTLE): _P.PAUSED,
    (_P.PAUSED, _V.MOVES_ENDED): _P.RELEASING,
    (_P.CANCELLING, _V.MOVES_ENDED): _P.RELEASING,
    (_P.RELEASING, _V.RELEASED): _P.ENDED,
}


def move_transition(state: MoveState, event: MoveEvent, subject: object = "the move") -> MoveState:
    """Return the next state. Raises IllegalTransition."""
    return step(MOVES, state, event, subject=str(subject))


def plan_transition(
    state: PlanState, event: PlanEvent, subject: str = "the plan", history: object | None = None
) -> PlanState:
    """Return the next state. Raises IllegalTransition with the plan's history."""
    return step(PLANS, state, event, subject=subject, history=history)
