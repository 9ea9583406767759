"""The life of a replica's move: a pure table, whose actions the mover executes.

              COPIED/JOIN          SEEN/NOTE_FENCE          OVER/SETTLE
     COPYING ────────────▶ SWITCHED ──────────────▶ RETIRING ──────────▶ (gone)
        │                   ▲ │ │                      │
        │                   └─┘ └────── SWAP ◀─────────┘ NEW_NODE_LOST
        └─ CALLED_OFF/DROP_NEW ──▶ (gone)

Each action is one write of the ledger, fenced, and made only while the move stands as it was read. A crash
of the master after each step leaves:

    1. the move is noted           nothing else: the next master copies, or calls it off
    2. the new node copies         a tablet that nobody reads; the copy goes on, or is asked for again
    3. JOIN                        two sets of replicas: a majority of either decides a load. The new replica
                                   joins, the old one leaves. Readers ask both
    4. NOTE_FENCE                  which transaction is the last that may have been decided by the set before
    5. SETTLE                      the old replica is no more, and its node has a pending task to drop it
    6. the old node drops it       when it answers, if it ever does

Step 4 is a write of its own, after step 3 has committed. Who read the replicas before step 3 had noted its
transaction by then, so that its number is below the fence; step 5 waits for all of these to end.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.errors import IllegalTransition
from rtolap.stored.metastore.records import MoveState


class MoveEvent(StrEnum):
    """An event of a move: something that the mover has found out about it.

    Attributes:
        COPIED: the new node has the visible version.
        CALLED_OFF: the reason is gone, or the new node takes no replicas any more.
        SEEN: the switch has committed.
        NEW_NODE_LOST: the new node is lost, and the old one lives.
        OVER: all that the old replica was needed for has ended.
    """

    COPIED = "COPIED"
    CALLED_OFF = "CALLED_OFF"
    SEEN = "SEEN"
    NEW_NODE_LOST = "NEW_NODE_LOST"
    OVER = "OVER"


class MoveAction(StrEnum):
    JOIN = "JOIN"
    DROP_NEW = "DROP_NEW"
    NOTE_FENCE = "NOTE_FENCE"
    SWAP = "SWAP"
    SETTLE = "SETTLE"


_S, _E, _A = MoveState, MoveEvent, MoveAction

# (state, event) -> (the next state, None where the move ends; the action)
TABLE: dict[tuple[MoveState, MoveEvent], tuple[MoveState | None, MoveAction]] = {
    (_S.COPYING, _E.COPIED): (_S.SWITCHED, _A.JOIN),
    (_S.COPYING, _E.CALLED_OFF): (None, _A.DROP_NEW),
    (_S.SWITCHED, _E.SEEN): (_S.RETIRING, _A.NOTE_FENCE),
    (_S.SWITCHED, _E.NEW_NODE_LOST): (_S.SWITCHED, _A.SWAP),
    (_S.RETIRING, _E.NEW_NODE_LOST): (_S.SWITCHED, _A.SWAP),
    (_S.RETIRING, _E.OVER): (None, _A.SETTLE),
}


def transition(state: MoveState, event: MoveEvent) -> tuple[MoveState | None, MoveAction]:
    """Return the next state and the action. Raises IllegalTransition."""
    step = TABLE.get((state, event))
    if step is None:
        raise IllegalTransition(f"a move of a replica is {state}", found=event)
    return step
