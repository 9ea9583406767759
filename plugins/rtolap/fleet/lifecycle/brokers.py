"""Operations on brokers: the one way to change what is recorded of them.

    1  read the record; adopt a broker that nobody recorded, as the snapshot shows it
    2  decide: conditions, then the table
    3  commit the new state, its pending actions and the audit entry, in one transaction
    4  execute the first pending action, and
    5  commit that it is done; again from 4

A crash up to 3 leaves nothing. After 3 the record names what is pending, and whoever comes next goes on at 4;
an action may so be executed twice, and each is made to stand that. A process that stalls in 4 may execute an
action of a state that others have left since: its commit is refused, and it brings the broker's setting to
what the present state promises. If it is killed just there, the next look at a snapshot does that.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, NotFound, NotYet, Refused, RtolapError
from rtolap.fleet.lifecycle.observations import (
    LOST_AFTER_MS,
    adopted_state,
    away_since,
    cordoned,
    host_of,
    observed,
    partly_cordoned,
    unmet,
)
from rtolap.fleet.lifecycle.states import (
    CORDONED_IN,
    OBSERVED,
    Action,
    AuditEntry,
    BrokerEvent,
    BrokerLife,
    BrokerRecord,
    legal,
    transition,
)
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.metadata import codec, paths
from rtolap.metadata.store import Create, MetadataStore, Put, Versioned
from rtolap.metadata.updates import put_or_create, retried

OBSERVER = "observation"


class BrokerActions(Protocol):
    """Changes of a cluster. Every call may be repeated; it raises while the cluster does not take it."""

    def cordon(self, broker: int) -> None: ...

    def uncordon(self, broker: int) -> None: ...

    def submit_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None:
        """Plan and submit what empties the broker. A repetition with the same id submits nothing more."""

    def cancel_drain(self, broker: int, drain_id: str, by: str, reason: str) -> None: ...

    def unregister(self, broker: int) -> None:
        """Let the cluster forget a broker that has ended."""


class BrokerOperations:
    """The life of the brokers of one cluster."""

    def __init__(
        self,
        store: MetadataStore,
        cluster_id: str,
        actions: BrokerActions,
        clock: Clock,
        *,
        lost_after_ms: int = LOST_AFTER_MS,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._actions = actions
        self._clock = clock
        self._lost_after_ms = lost_after_ms

    def records(self) -> dict[int, BrokerRecord]:
        """Return what is recorded, by broker."""
        names = self._store.children(paths.fleet_brokers(self._cluster_id))
        found = {int(name): self._read(int(name))[1] for name in names}
        return {broker: found[broker] for broker in sorted(found)}

    def entries(self, broker: int) -> tuple[AuditEntry, ...]:
        """Return every change of a broker, the oldest first."""
        folder = paths.fleet_audit(self._cluster_id, broker)
        numbers = sorted(self._store.children(folder), key=int)
        nodes = ((number, self._store.get(f"{folder}/{number}")) for number in numbers)
        return tuple(codec.decode(node.data, AuditEntry, f"{folder}/{n}") for n, node in nodes if node)

    @retried
    def register_broker(self, broker: int, host: str, by: str, reason: str) -> BrokerRecord:
        """Record a new machine. Raises Refused where a broker of this id lives."""
        node, record = self._look(broker)
        if record is not None:
            after, pending = transition(
                record.state, BrokerEvent.ADD, subject=f"broker {broker}", history=record.past
            )
        else:
            after, pending = BrokerLife.PROVISIONED, ()
        return self._commit(
            node, record, broker, host, BrokerEvent.ADD, after, pending, by, reason, _new_id()
        )

    def operate(
        self,
        broker: int,
        event: BrokerEvent,
        by: str,
        reason: str,
        snapshot: FleetSnapshot,
        operation_id: str | None = None,
    ) -> BrokerRecord:
        """Do an operation, and all that it orders; with the `operation_id` of one that was begun, finish it.

        Raises IllegalTransition (with the history), Refused (a condition does not hold), NotYet (an operation
        before has actions pending that fail still), NotFound (no such broker).
        """
        if event in OBSERVED:
            raise Refused(f"broker {broker}: {event} is observed, and not to be asked for")
        self._check_cluster(snapshot)
        operation_id = operation_id or _new_id()
        self._settle(broker, operation_id)

        @retried
        def attempt() -> BrokerRecord:
            node, record = self._look(broker)
            if record is not None and record.knows(operation_id):
                return record  # committed by a call whose answer was lost
            if record is None:
                node, record = self._adopt(broker, snapshot)
            if record.pending:
                raise NotYet(
                    f"broker {broker}: an operation before is not done",
                    found=f"{', '.join(record.pending)}: {record.problem or 'another process is at it'}",
                    action="ask again, or look at rtolap fleet brokers",
                )
            after, pending = transition(record.state, event, subject=f"broker {broker}", history=record.past)
            why_not = unmet(event, record.state, broker, snapshot)
            if why_not is not None:
                raise Refused(f"broker {broker}: {event} is not safe now", found=why_not)
            return self._commit(
                node, record, broker, record.host, event, after, pending, by, reason, operation_id
            )

        attempt()
        return self.resume(broker)

    def observe(self, snapshot: FleetSnapshot) -> dict[int, RtolapError]:
        """Note what happened by itself, go on with pending actions, and bring the settings of brokers to what
        their states promise. Returns what failed, by broker: one does not hold up the others."""
        self._check_cluster(snapshot)
        failed = {}
        for broker in self.records():
            try:
                self._observe(broker, snapshot)
            except RtolapError as error:
                failed[broker] = error
        return failed

    def _observe(self, broker: int, snapshot: FleetSnapshot) -> None:
        node, record = self._read(broker)
        away_since_ms = away_since(record, snapshot)
        if away_since_ms != record.away_since_ms:
            record = msgspec.structs.replace(record, away_since_ms=away_since_ms)
            if not self._put(broker, node, record):
                return  # somebody else is at it
        event = observed(record, snapshot, self._lost_after_ms)
        if event is not None and (not record.pending or event is BrokerEvent.LOST):
            self._note(broker, event, snapshot)
        elif record.pending:
            self.resume(broker)
        else:
            self._reassert(record, snapshot)

    def resume(self, broker: int) -> BrokerRecord:
        """Execute the pending actions. An action that fails stays pending with the reason, which is
        raised."""
        while True:
            node, record = self._read(broker)
            if not record.pending:
                return record
            action = record.pending[0]
            try:
                self._execute(action, record)
            except RtolapError as error:
                self._put(broker, node, msgspec.structs.replace(record, problem=str(error)))
                raise
            done = msgspec.structs.replace(record, pending=record.pending[1:], problem=None)
            if action is Action.SUBMIT_DRAIN:
                done = msgspec.structs.replace(done, drain_id=record.last.operation_id)
            if not self._put(broker, node, done):
                self._reassert_now(broker)

    def _settle(self, broker: int, operation_id: str) -> None:
        """Go on with an operation that was left in the middle."""
        _, record = self._look(broker)
        if record is None or not record.pending or record.last.operation_id == operation_id:
            return
        self.resume(broker)

    def _note(self, broker: int, event: BrokerEvent, snapshot: FleetSnapshot) -> BrokerRecord:
        operation_id = _new_id()

        @retried
        def attempt() -> BrokerRecord:
            node, record = self._read(broker)
            if record.knows(operation_id) or not legal(record.state, event):
                return record
            after, pending = transition(record.state, event)
            reason = f"snapshot of {snapshot.taken_at_ms}"
            return self._commit(
                node, record, broker, record.host, event, after, pending, OBSERVER, reason, operation_id
            )

        attempt()
        return self.resume(broker)

    def _adopt(self, broker: int, snapshot: FleetSnapshot) -> tuple[Versioned, BrokerRecord]:
        if broker not in snapshot.brokers.ids:
            raise NotFound(
                f"cluster {self._cluster_id} has no broker {broker}",
                action="a new machine is recorded by rtolap fleet join",
            )
        state = adopted_state(broker, snapshot)
        host = host_of(broker, snapshot)
        self._commit(
            None, None, broker, host, None, state, (), OBSERVER, "as the cluster shows it", _new_id()
        )
        return self._read(broker)

    def _commit(
        self,
        node: Versioned | None,
        record: BrokerRecord | None,
        broker: int,
        host: str,
        event: BrokerEvent | None,
        after: BrokerLife,
        pending: tuple[Action, ...],
        by: str,
        reason: str,
        operation_id: str,
    ) -> BrokerRecord:
        entry = AuditEntry(
            number=1 if record is None else record.entries + 1,
            at_ms=self._clock.now_ms(),
            by=by,
            reason=reason,
            event=event,
            operation_id=operation_id,
            before=None if record is None else record.state,
            after=after,
        )
        empty = BrokerRecord(broker=broker, host=host, state=after, entries=0)
        changed = msgspec.structs.replace((record or empty).after(entry, pending), host=host)
        self._store.commit(
            [
                put_or_create(paths.fleet_broker(self._cluster_id, broker), codec.encode(changed), node),
                Create(paths.fleet_audit_entry(self._cluster_id, broker, entry.number), codec.encode(entry)),
            ]
        )
        return changed

    def _execute(self, action: Action, record: BrokerRecord) -> None:
        last = record.last
        match action:
            case Action.CORDON:
                self._actions.cordon(record.broker)
            case Action.UNCORDON:
                self._actions.uncordon(record.broker)
            case Action.SUBMIT_DRAIN:
                self._actions.submit_drain(record.broker, last.operation_id, last.by, last.reason)
            case Action.CANCEL_DRAIN:
                if record.drain_id is not None:
                    self._actions.cancel_drain(record.broker, record.drain_id, last.by, last.reason)
            case Action.UNREGISTER:
                self._actions.unregister(record.broker)

    def _put(self, broker: int, node: Versioned, record: BrokerRecord) -> bool:
        """Return False where somebody else changed the record since, and nothing was written."""
        path = paths.fleet_broker(self._cluster_id, broker)
        data = codec.encode(record)

        @retried
        def attempt() -> bool:
            present = self._store.get(path)
            if present is not None and present.data == data:
                return True  # a commit whose answer was lost
            if present is None or present.version != node.version:
                return False
            self._store.commit([Put(path, data, node.version)])
            return True

        try:
            return attempt()
        except CommitConflict:
            return False

    def _reassert(self, record: BrokerRecord, snapshot: FleetSnapshot) -> None:
        """Set the broker's state once more to what it is, since a snapshot may be older than the setting."""
        wanted = CORDONED_IN[record.state]
        differs = {
            Action.CORDON: cordoned(record.broker, snapshot) is False,
            Action.UNCORDON: partly_cordoned(record.broker, snapshot),
        }
        if wanted is not None and differs[wanted]:
            self._execute(wanted, record)
            self._reassert_now(record.broker)

    def _reassert_now(self, broker: int) -> None:
        """Bring the setting to the present state, until the state stays the same meanwhile."""
        before: BrokerLife | None = None
        while True:
            _, record = self._read(broker)
            wanted = CORDONED_IN[record.state]
            if record.pending or wanted is None or record.state is before:
                return
            self._execute(wanted, record)
            before = record.state

    def _look(self, broker: int) -> tuple[Versioned | None, BrokerRecord | None]:
        path = paths.fleet_broker(self._cluster_id, broker)
        node = self._store.get(path)
        return node, None if node is None else codec.decode(node.data, BrokerRecord, path)

    def _read(self, broker: int) -> tuple[Versioned, BrokerRecord]:
        node, record = self._look(broker)
        if node is None or record is None:
            raise NotFound(f"broker {broker} of cluster {self._cluster_id} is not recorded")
        return node, record

    def _check_cluster(self, snapshot: FleetSnapshot) -> None:
        if snapshot.cluster_id != self._cluster_id:
            raise Refused(
                "the snapshot is another cluster's", expected=self._cluster_id, found=snapshot.cluster_id
            )


def out_of_service(records: Iterable[BrokerRecord]) -> list[int]:
    """Return brokers that do not take part, of those recorded."""
    away = frozenset(BrokerLife) - {BrokerLife.SERVING, BrokerLife.PROVISIONED, BrokerLife.RETIRED}
    return sorted(record.broker for record in records if record.state in away)


def _new_id() -> str:
    return uuid.uuid4().hex
