"""The life of a segment: one pure table.

                    CLOSE               PARTS_JOINED                PROMOTE
        ACTIVE ───────────▶ IMMUTABLE ───────────────▶ REMOTE_PERSISTED ────────▶ READY
          │                   │  ▲ ▲                      │ │ ▲                   │  │
          │                   │  │ └───── PARTS_LOST ──────┘ │ │                   │  │
          │                   │  │ └──── BASE_RESTORED ──────┤ │                   │  │
          │ PURGE             │  └─── CLOSE, BASE_LOST ──────┼─┼───────────────────┘  │
          └───────────────────┴───── PURGE ──────────────────┘ └────── REQUEUE ───────┤
                              ▼                                                      │
                           PURGED ◀──────────────────── PURGE ───────────────────────┘

A READY segment whose late delta is closed goes round again: while it is IMMUTABLE or REMOTE_PERSISTED its
present version keeps answering, until the next one is promoted. REQUEUE rebuilds it from what it has.
PARTS_LOST leads from REMOTE_PERSISTED back to IMMUTABLE: a staged part is missing or damaged, and receivers,
which hold a version until it is READY, upload it again.
BASE_LOST leads to IMMUTABLE too: the READY version has lost what builds start from, and the parts of the next
one hold all of the segment, read again from Kafka. BASE_RESTORED takes that back: its files are there again.
PURGED is for ever: a replay does not bring such a segment back.

The table orders nothing to be done. Every service acts on the state that it reads in the record: an order
that is given with a transition would be lost with the process that has committed it.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.transitions import step


class SegmentState(StrEnum):
    ACTIVE = "ACTIVE"
    IMMUTABLE = "IMMUTABLE"
    REMOTE_PERSISTED = "REMOTE_PERSISTED"
    READY = "READY"
    PURGED = "PURGED"


class SegmentEvent(StrEnum):
    CLOSE = "CLOSE"
    PARTS_JOINED = "PARTS_JOINED"
    PARTS_LOST = "PARTS_LOST"
    BASE_LOST = "BASE_LOST"
    BASE_RESTORED = "BASE_RESTORED"
    PROMOTE = "PROMOTE"
    REQUEUE = "REQUEUE"
    PURGE = "PURGE"


_S, _E = SegmentState, SegmentEvent

TRANSITIONS: dict[tuple[SegmentState, SegmentEvent], SegmentState] = {
    (_S.ACTIVE, _E.CLOSE): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.CLOSE): _S.IMMUTABLE,  # another replica set closes its share
    (_S.READY, _E.CLOSE): _S.IMMUTABLE,  # a late delta
    (_S.IMMUTABLE, _E.PARTS_JOINED): _S.REMOTE_PERSISTED,
    (_S.IMMUTABLE, _E.PARTS_LOST): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.PARTS_LOST): _S.IMMUTABLE,
    (_S.READY, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.BASE_LOST): _S.IMMUTABLE,
    (_S.IMMUTABLE, _E.BASE_RESTORED): _S.IMMUTABLE,
    (_S.REMOTE_PERSISTED, _E.BASE_RESTORED): _S.IMMUTABLE,
    (_S.READY, _E.REQUEUE): _S.REMOTE_PERSISTED,
    (_S.REMOTE_PERSISTED, _E.PROMOTE): _S.READY,
    (_S.ACTIVE, _E.PURGE): _S.PURGED,
    (_S.IMMUTABLE, _E.PURGE): _S.PURGED,
    (_S.REMOTE_PERSISTED, _E.PURGE): _S.PURGED,
    (_S.READY, _E.PURGE): _S.PURGED,
}


def transition(
    state: SegmentState, event: SegmentEvent, *, subject: str = "segment", history: object = ()
) -> SegmentState:
    """The next state. Raises IllegalTransition with the segment's state history."""
    return step(TRANSITIONS, state, event, subject=subject, history=history)
