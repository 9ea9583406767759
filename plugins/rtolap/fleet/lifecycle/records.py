"""Records of a broker, and of every change of it."""

from __future__ import annotations

import msgspec

from rtolap.fleet.lifecycle.states import Action, BrokerEvent, BrokerLife

HISTORY_MAX = 20  # of a record; the entries are all kept


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. operation_id: of the request, by which a repetition is told; before: None where the broker
    was not recorded. by: who asked, or saw it."""

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
    """pending: actions that the last change ordered and that are not known to be done, in their order.
    history: the last entries; entries: how many there are. drain_id: of the moves that were submitted last.
    problem: why the first pending action is not done. away_since_ms: when it was first seen not to serve,
    though its state says so."""

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
    def told(self) -> str:
        """Return its last changes in words."""
        return "; ".join(entry.text for entry in self.history[-5:])
