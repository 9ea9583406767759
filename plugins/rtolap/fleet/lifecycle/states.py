"""The life of a broker and its machine: one pure table, and the records of what a broker went through.

                  JOIN            JOINED             CORDON
    PROVISIONED ───────▶ JOINING ────────▶ SERVING ──────────▶ CORDONED ◀──────────────────────┐
         │                  ▲                 ▲  │ UNCORDON ◀────┘ │ ▲ │                         │
         │                  │                 │  │           DRAIN │ │ │ REPAIR                  │
         │                  │                 │  └──────┐          │ │ CANCEL_DRAIN, OCCUPIED    │
         │         REPAIRED │        UNCORDON │   DRAIN ▼          ▼ │ │                         │
         │                  │                 │       DRAINING ──────┤ │                         │
         │                  │                 │          │ EMPTIED   │ │                         │
         │                  │                 │          ▼           │ │           RETURNED      │
         │                  └── REPAIRING ◀───┴─────  DRAINED ───────┘ │        FAILED ──────────┘
         │                        │    ▲    REPAIR       │             │          ▲  │
         │                        │    └─────────────────│─────────────┘   LOST ──┘  │ REPAIR → REPAIRING
         │ RETIRE                 │ RETIRE               │ RETIRE                    │ DRAIN  → DRAINING
         └────────────────────────┴──────────────────────┴──▶ RETIRING ◀── RETIRE ───┘
                                                                │ GONE
                                                                ▼
                                                             RETIRED ── ADD ──▶ PROVISIONED

LOST leads to FAILED from SERVING and CORDONED. A broker that is being drained, or is empty, stays in its
state without its process: its partitions are copied from elsewhere, and nothing is lost with it. One that
returns from FAILED by itself takes nothing new until a person lets it. One that never joins may be repaired
or retired like one that does. GONE is one that has ended and holds nothing; then the cluster forgets it.
RETIRED is for ever, unless another machine is added with the same id.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rtolap.base.transitions import step

HISTORY_MAX = 20  # of a record; the entries are all kept


class BrokerLife(StrEnum):
    PROVISIONED = "PROVISIONED"
    JOINING = "JOINING"
    SERVING = "SERVING"
    CORDONED = "CORDONED"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    FAILED = "FAILED"
    REPAIRING = "REPAIRING"
    RETIRING = "RETIRING"
    RETIRED = "RETIRED"


class BrokerEvent(StrEnum):
    """The operations that people request, and the events that are observed."""

    ADD = "ADD"
    JOIN = "JOIN"
    CORDON = "CORDON"
    UNCORDON = "UNCORDON"
    DRAIN = "DRAIN"
    CANCEL_DRAIN = "CANCEL_DRAIN"
    REPAIR = "REPAIR"
    REPAIRED = "REPAIRED"
    RETIRE = "RETIRE"

    JOINED = "JOINED"
    EMPTIED = "EMPTIED"
    OCCUPIED = "OCCUPIED"
    LOST = "LOST"
    RETURNED = "RETURNED"
    GONE = "GONE"


class Action(StrEnum):
    """An action that a change of state requires.

    Attributes:
        CORDON: The broker takes no new replicas.
        SUBMIT_DRAIN: All replicas of the broker are moved to others.
        UNREGISTER: The cluster forgets the broker.
    """

    CORDON = "CORDON"
    UNCORDON = "UNCORDON"
    SUBMIT_DRAIN = "SUBMIT_DRAIN"
    CANCEL_DRAIN = "CANCEL_DRAIN"
    UNREGISTER = "UNREGISTER"


_S, _E, _A = BrokerLife, BrokerEvent, Action

OBSERVED = frozenset({_E.JOINED, _E.EMPTIED, _E.OCCUPIED, _E.LOST, _E.RETURNED, _E.GONE})

TRANSITIONS: dict[tuple[BrokerLife, BrokerEvent], tuple[BrokerLife, tuple[Action, ...]]] = {
    (_S.PROVISIONED, _E.JOIN): (_S.JOINING, ()),
    (_S.PROVISIONED, _E.RETIRE): (_S.RETIRING, ()),
    (_S.JOINING, _E.JOINED): (_S.SERVING, (_A.UNCORDON,)),
    (_S.JOINING, _E.REPAIR): (_S.REPAIRING, ()),
    (_S.JOINING, _E.RETIRE): (_S.RETIRING, ()),
    (_S.SERVING, _E.CORDON): (_S.CORDONED, (_A.CORDON,)),
    (_S.SERVING, _E.DRAIN): (_S.DRAINING, (_A.CORDON, _A.SUBMIT_DRAIN)),
    (_S.SERVING, _E.LOST): (_S.FAILED, ()),
    (_S.CORDONED, _E.UNCORDON): (_S.SERVING, (_A.UNCORDON,)),
    (_S.CORDONED, _E.DRAIN): (_S.DRAINING, (_A.CORDON, _A.SUBMIT_DRAIN)),
    (_S.CORDONED, _E.REPAIR): (_S.REPAIRING, ()),
    (_S.CORDONED, _E.LOST): (_S.FAILED, ()),
    (_S.DRAINING, _E.DRAIN): (_S.DRAINING, (_A.SUBMIT_DRAIN,)),  # what its plan left, or came since
    (_S.DRAINING, _E.EMPTIED): (_S.DRAINED, ()),
    (_S.DRAINING, _E.CANCEL_DRAIN): (_S.CORDONED, (_A.CANCEL_DRAIN,)),
    (_S.DRAINED, _E.OCCUPIED): (_S.CORDONED, (_A.CORDON,)),
    (_S.DRAINED, _E.UNCORDON): (_S.SERVING, (_A.UNCORDON,)),
    (_S.DRAINED, _E.REPAIR): (_S.REPAIRING, ()),
    (_S.DRAINED, _E.RETIRE): (_S.RETIRING, ()),
    (_S.FAILED, _E.RETURNED): (_S.CORDONED, (_A.CORDON,)),
    (_S.FAILED, _E.DRAIN): (_S.DRAINING, (_A.SUBMIT_DRAIN,)),
    (_S.FAILED, _E.REPAIR): (_S.REPAIRING, ()),
    (_S.FAILED, _E.RETIRE): (_S.RETIRING, ()),
    (_S.REPAIRING, _E.REPAIRED): (_S.JOINING, ()),
    (_S.REPAIRING, _E.RETIRE): (_S.RETIRING, ()),
    (_S.RETIRING, _E.GONE): (_S.RETIRED, (_A.UNREGISTER,)),
    (_S.RETIRED, _E.ADD): (_S.PROVISIONED, ()),
}

CORDONED_IN: dict[BrokerLife, Action | None] = {
    _S.PROVISIONED: None,
    _S.JOINING: None,
    _S.SERVING: _A.UNCORDON,
    _S.CORDONED: _A.CORDON,
    _S.DRAINING: _A.CORDON,
    _S.DRAINED: _A.CORDON,
    _S.FAILED: None,
    _S.REPAIRING: None,
    _S.RETIRING: None,
    _S.RETIRED: None,
}
"""Operations that bring the broker's own setting to what a state promises; None where nothing is promised."""


def transition(
    state: BrokerLife, event: BrokerEvent, *, subject: str = "broker", history: object = ()
) -> tuple[BrokerLife, tuple[Action, ...]]:
    """Return the next state, and what is to be executed. Raises IllegalTransition with the history."""
    return step(TRANSITIONS, state, event, subject=subject, history=history)


def legal(state: BrokerLife, event: BrokerEvent) -> bool:
    return (state, event) in TRANSITIONS


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change in the life of a broker.

    Attributes:
        operation_id: identifies the request, so that a repetition is recognised.
        before: the state before the change; None if the broker was not recorded.
        by: who requested the change, or observed it.
    """

    number: int
    at_ms: int
    by: str
    reason: str
    event: BrokerEvent | None
    operation_id: str
    before: BrokerLife | None
    after: BrokerLife

    @property
    def text(self) -> str:
        event = "recorded" if self.event is None else self.event
        return f"{event}: {self.before or '-'} to {self.after}, by {self.by}: {self.reason}"


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a broker.

    Attributes:
        entries: Number of audit entries.
        history: The last entries.
        pending: Actions that the last change requires and that are not known to be done, in their order.
        drain_id: Id of the moves that were submitted last. None without any.
        problem: Why the first pending action is not done. None where there is no problem.
        away_since_ms: Time at which the broker was first seen not to serve, although its state says so.
    """

    broker: int
    host: str
    state: BrokerLife
    entries: int
    history: tuple[AuditEntry, ...] = ()
    pending: tuple[Action, ...] = ()
    drain_id: str | None = None
    problem: str | None = None
    away_since_ms: int | None = None

    @property
    def last(self) -> AuditEntry:
        return self.history[-1]

    def after(self, entry: AuditEntry, pending: tuple[Action, ...]) -> BrokerRecord:
        """Return the record with this change, whose actions stand in the place of those before."""
        return msgspec.structs.replace(
            self,
            state=entry.after,
            entries=entry.number,
            history=(*self.history, entry)[-HISTORY_MAX:],
            pending=pending,
            problem=None,
            away_since_ms=None,
        )

    def knows(self, operation_id: str) -> bool:
        """Return whether the operation was committed, as far as the history goes back."""
        return any(entry.operation_id == operation_id for entry in self.history)

    @property
    def past(self) -> str:
        """Return its last changes in words."""
        return "; ".join(entry.text for entry in self.history[-5:])
