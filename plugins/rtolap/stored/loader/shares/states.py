"""The duties of a process towards a share: a pure table.

                     ASSIGNED / take                UNASSIGNED / give up
        NOT_OWNED ───────────────────▶ TAKEN ───────────────────────────▶ GIVEN_UP
            ▲                            │ ENDED / forget                     │ ENDED / forget
            └────────────────────────────┴────────────────────────────────────┘

A run that is TAKEN waits until the share is free, so nobody has to say when that is. A run ENDED because it
was asked to, because another process has the share, or because the job has failed. A share that is assigned
again while its run ends is taken anew once that has ended.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class ShareState(StrEnum):
    NOT_OWNED = "NOT_OWNED"
    TAKEN = "TAKEN"
    GIVEN_UP = "GIVEN_UP"


class ShareEvent(StrEnum):
    ASSIGNED = "ASSIGNED"
    UNASSIGNED = "UNASSIGNED"
    ENDED = "ENDED"


class ShareAction(StrEnum):
    NOTHING = "NOTHING"
    TAKE = "TAKE"
    GIVE_UP = "GIVE_UP"
    FORGET = "FORGET"


_S, _E, _A = ShareState, ShareEvent, ShareAction

TRANSITIONS: dict[tuple[ShareState, ShareEvent], tuple[ShareState, ShareAction]] = {
    (_S.NOT_OWNED, _E.ASSIGNED): (_S.TAKEN, _A.TAKE),
    (_S.NOT_OWNED, _E.UNASSIGNED): (_S.NOT_OWNED, _A.NOTHING),
    (_S.TAKEN, _E.ASSIGNED): (_S.TAKEN, _A.NOTHING),
    (_S.TAKEN, _E.UNASSIGNED): (_S.GIVEN_UP, _A.GIVE_UP),
    (_S.TAKEN, _E.ENDED): (_S.NOT_OWNED, _A.FORGET),
    (_S.GIVEN_UP, _E.ASSIGNED): (_S.GIVEN_UP, _A.NOTHING),
    (_S.GIVEN_UP, _E.UNASSIGNED): (_S.GIVEN_UP, _A.NOTHING),
    (_S.GIVEN_UP, _E.ENDED): (_S.NOT_OWNED, _A.FORGET),
}


def transition(share: int, state: ShareState, event: ShareEvent) -> tuple[ShareState, ShareAction]:
    """Return the next state and the action. Raises IllegalTransition."""
    return step(TRANSITIONS, state, event, subject=f"share {share}")
