"""The life of a share in one consumer: one pure table, whose actions `held` executes.

       CLAIMED                 RECOVERED
FREE ──────────▶ CLAIMED ──────────────────▶ SERVING
 ▲                │ ▲ │ FAILED, RETRIED          │
 │                │ └─┘                FENCED    │
 │ LOST, UNPLANNED│ ◀────────────────────────────┤
 └────────────────┴──────────────────────────────┘ LOST, UNPLANNED

CLAIMED     this consumer's node says that it holds the share
RECOVERED   the journal was taken over and read: the holder before can write nothing any more
FAILED      that was not possible now
RETRIED     the next look at a share that is not recovered
FENCED      another process took the journal over, or delivery has ended; the node is still ours
UNPLANNED   another consumer is to have the share
LOST        the node is gone or another's: the session is over
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rtolap.base.transitions import step


class ShareState(StrEnum):
    FREE = "FREE"
    CLAIMED = "CLAIMED"
    SERVING = "SERVING"


class ShareEvent(StrEnum):
    CLAIMED = "CLAIMED"
    RECOVERED = "RECOVERED"
    FAILED = "FAILED"
    RETRIED = "RETRIED"
    FENCED = "FENCED"
    UNPLANNED = "UNPLANNED"
    LOST = "LOST"


class ShareAction(StrEnum):
    """An action that a change of state requires.

    Attributes:
        RECOVER: Take the journal over and read it. It ends with RECOVERED or FAILED.
        SERVE: Begin to take parts.
        DRAIN: Take no parts any more, and finish the group that is under way.
        CLOSE: Close the connections of the delivery.
        RELEASE: Remove the node, so that another consumer may claim the share.
    """

    RECOVER = "RECOVER"
    SERVE = "SERVE"
    DRAIN = "DRAIN"
    CLOSE = "CLOSE"
    RELEASE = "RELEASE"


Transition = tuple[ShareState, tuple[ShareAction, ...]]
_S, _E, _A = ShareState, ShareEvent, ShareAction

TRANSITIONS: Mapping[tuple[ShareState, ShareEvent], Transition] = {
    (_S.FREE, _E.CLAIMED): (_S.CLAIMED, (_A.RECOVER,)),
    (_S.CLAIMED, _E.RECOVERED): (_S.SERVING, (_A.SERVE,)),
    (_S.CLAIMED, _E.FAILED): (_S.CLAIMED, (_A.CLOSE,)),
    (_S.CLAIMED, _E.RETRIED): (_S.CLAIMED, (_A.RECOVER,)),
    (_S.CLAIMED, _E.UNPLANNED): (_S.FREE, (_A.CLOSE, _A.RELEASE)),
    (_S.CLAIMED, _E.LOST): (_S.FREE, (_A.CLOSE,)),
    (_S.SERVING, _E.FENCED): (_S.CLAIMED, (_A.DRAIN, _A.CLOSE)),
    (_S.SERVING, _E.UNPLANNED): (_S.FREE, (_A.DRAIN, _A.CLOSE, _A.RELEASE)),
    (_S.SERVING, _E.LOST): (_S.FREE, (_A.DRAIN, _A.CLOSE)),
}


def changed(state: ShareState, event: ShareEvent, share: int) -> Transition:
    """Return the next state and the actions. Raises IllegalTransition."""
    return step(TRANSITIONS, state, event, subject=f"share {share}")
