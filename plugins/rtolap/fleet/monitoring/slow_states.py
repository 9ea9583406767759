"""The states of a broker between slow and well at a kind of request: one pure table.

                 ABOVE                  CONFIRMED
        NORMAL ─────────▶ SUSPECTED ─────────────────▶ SLOW
          ▲  ▲                │                        │  ▲
          │  └──── BELOW ─────┘                  BELOW │  │ ABOVE
          │                                            ▼  │
          └───────────────── CONFIRMED ────────── RECOVERING

ABOVE and BELOW are readings that say something: with enough requests, and beyond the threshold or well below
it. Anything else is no event, and leaves everything as it stands. CONFIRMED: as many readings of the same
kind came one after the other as the rule demands.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class SlowState(StrEnum):
    NORMAL = "NORMAL"
    SUSPECTED = "SUSPECTED"
    SLOW = "SLOW"
    RECOVERING = "RECOVERING"


class SlowEvent(StrEnum):
    ABOVE = "ABOVE"
    BELOW = "BELOW"
    CONFIRMED = "CONFIRMED"


_S, _E = SlowState, SlowEvent

TRANSITIONS: dict[tuple[SlowState, SlowEvent], SlowState] = {
    (_S.NORMAL, _E.ABOVE): _S.SUSPECTED,
    (_S.NORMAL, _E.BELOW): _S.NORMAL,
    (_S.SUSPECTED, _E.ABOVE): _S.SUSPECTED,
    (_S.SUSPECTED, _E.BELOW): _S.NORMAL,
    (_S.SUSPECTED, _E.CONFIRMED): _S.SLOW,
    (_S.SLOW, _E.ABOVE): _S.SLOW,
    (_S.SLOW, _E.BELOW): _S.RECOVERING,
    (_S.RECOVERING, _E.BELOW): _S.RECOVERING,
    (_S.RECOVERING, _E.ABOVE): _S.SLOW,
    (_S.RECOVERING, _E.CONFIRMED): _S.NORMAL,
}
# Those in which it is called slow: what was confirmed stays so until its recovery is.
CALLED_SLOW = frozenset({SlowState.SLOW, SlowState.RECOVERING})


def transition(state: SlowState, event: SlowEvent, *, subject: str) -> SlowState:
    """Raises IllegalTransition naming what is legal."""
    return step(TRANSITIONS, state, event, subject=subject)
