"""Replays and drops of a job's dead letters, as the ledger keeps them.

A replay is a load under a label of its own, `JOB_INCARNATION_rNUMBER`. Its life is one pure table:

    SENDING ── LOADED ──▶ LOADED
       ├────── REOPEN ──▶ REOPENED   surely not in the table: its records are OPEN again
       └───── ABANDON ──▶ ABANDONED  the job was reset in between: its records are UNCERTAIN

A replay by what a crash after each step leaves behind:

    1. begin          its records are REPLAYING, under its label: no other replay or drop takes them
    2. note_sent      until when a request under the label may come
    3. the request    the label is closed at the sink: it is loaded, or no load is taken under it any more
    4. finish         its records are REPLAYED; or `reopen`: OPEN, with the reason, for a further replay
    5. acknowledge    the sink may forget the label, once no request is taken any more

Who comes next ends what the one before has left. One at a time replays: by a lease that fences each of these
writes. A drop is one write, and takes what no replay has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound, Refused
from rtolap.base.transitions import step
from rtolap.model.offsets import Offsets
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letter_sets import (
    LetterSet,
    LetterState,
    counts_by_state,
    letter_sets,
    split,
    supersede,
)
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.places import Places
from rtolap.stored.metastore.schema import dead_letter_action as _a
from rtolap.stored.metastore.schema import load_job as _j

ACTIONS_KEPT_MAX = 10_000  # ended ones of a job; beyond that the oldest are forgotten
_LEASE_MS = 15_000


class ActionKind(StrEnum):
    REPLAY = "replay"
    DROP = "drop"


class ReplayState(StrEnum):
    SENDING = "SENDING"
    LOADED = "LOADED"
    REOPENED = "REOPENED"
    ABANDONED = "ABANDONED"
    DROPPED = "DROPPED"  # of a drop, which is one write


class ReplayEvent(StrEnum):
    LOADED = "LOADED"
    REOPEN = "REOPEN"
    ABANDON = "ABANDON"


TRANSITIONS: dict[tuple[ReplayState, ReplayEvent], ReplayState] = {
    (ReplayState.SENDING, ReplayEvent.LOADED): ReplayState.LOADED,
    (ReplayState.SENDING, ReplayEvent.REOPEN): ReplayState.REOPENED,
    (ReplayState.SENDING, ReplayEvent.ABANDON): ReplayState.ABANDONED,
}


class LetterAction(msgspec.Struct, frozen=True):
    """A replay of dead letters, or a drop.

    Attributes:
        label: of a replay; "" of a drop.
        records: how many letters it concerns.
        who: the person, as the caller names them.
        detail: why it is reopened, or why a person dropped them.
        sent_until_ms: no request of it is accepted after that; 0 before it was sent.
        acknowledged: the sink need not retain the label any more.
    """

    action_id: int
    job_id: str
    kind: ActionKind
    state: ReplayState
    label: str
    records: int
    who: str
    detail: str = ""
    sent_until_ms: int = 0
    acknowledged: int = 0
    began_at_ms: int = 0
    finished_at_ms: int | None = None


class _Made(msgspec.Struct, frozen=True):
    action: LetterAction | None


class DeadLetters:
    """The dead letters of all jobs of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leases = Leases(ledger, schema.lease)

    # --- whose turn it is -----------------------------------------------------------------------------

    def own(self, job_id: str, owner: str) -> Lease:
        """Take the turn to replay letters of a job. Raises NotYet while another process has it."""
        return self._leases.acquire(f"dead letters of {job_id}", owner, _LEASE_MS)

    def renew(self, lease: Lease) -> Lease:
        return self._leases.renew(lease, _LEASE_MS)

    def release(self, lease: Lease) -> None:
        self._leases.release(lease)

    # --- what there is --------------------------------------------------------------------------------

    def sets(
        self, job_id: str, *states: LetterState, labels: Collection[str] | None = None
    ) -> tuple[LetterSet, ...]:
        """Return the sets of a job in these states, the earliest first; in any where none is named. `labels`:
        of these batches alone."""
        return self._ledger.read(
            f"read the dead letters of {job_id}",
            lambda connection: letter_sets(connection, job_id, states or tuple(LetterState), labels),
        )

    def counts(self, job_id: str) -> dict[str, int]:
        """Return the number of letters by state."""
        return self._ledger.read(
            f"count the dead letters of {job_id}", lambda connection: counts_by_state(connection, job_id)
        )

    def actions(self, job_id: str, ids: Collection[int]) -> dict[int, LetterAction]:
        """Return those of these replays and drops that the ledger keeps, by their number."""
        named = _of_job(job_id).where(_a.c.action_id.in_(sorted(ids)))
        return {action.action_id: action for action in self._read(job_id, named)}

    def unfinished(self, job_id: str) -> tuple[LetterAction, ...]:
        """Return the replays whose outcome is not noted, the earliest first."""
        pending = _of_job(job_id).where(_a.c.state == ReplayState.SENDING.value).order_by(_a.c.action_id)
        return self._read(job_id, pending)

    def unacknowledged(self, job_id: str) -> tuple[LetterAction, ...]:
        """Return the replays that have ended, and whose labels the sink may still retain."""
        ended = _of_job(job_id).where(
            _a.c.state.in_([ReplayState.LOADED.value, ReplayState.REOPENED.value]),
            _a.c.sent_until_ms > 0,
            _a.c.acknowledged == 0,
        )
        return self._read(job_id, ended.order_by(_a.c.action_id))

    def _read(self, job_id: str, statement: sa.Select[tuple[object, ...]]) -> tuple[LetterAction, ...]:
        def work(connection: sa.Connection) -> tuple[LetterAction, ...]:
            return tuple(_action(row) for row in connection.execute(statement))

        return self._ledger.read(f"read replays of {job_id}", work)

    # --- the steps ------------------------------------------------------------------------------------

    def begin(self, lease: Lease, job_id: str, chosen: Mapping[str, Places], who: str) -> LetterAction | None:
        """Begin a replay of those of the chosen records, by the label of their batch, that are OPEN now; None
        where none is."""

        def work(connection: sa.Connection, now_ms: int) -> _Made:
            incarnation = _locked_incarnation(connection, job_id)
            action = _insert(connection, job_id, ActionKind.REPLAY, ReplayState.SENDING, who, "", now_ms)
            taken = _take(connection, job_id, chosen, LetterState.REPLAYING, action, now_ms)
            if not taken:
                connection.execute(sa.delete(_a).where(_a.c.action_id == action))
                return _Made(None)
            label = f"{job_id}_{incarnation}_r{action}"
            _update(connection, action, label=label, records=taken)
            return _Made(_get(connection, action))

        return self._leases.write(lease, f"begin a replay of {job_id}", _Made, work).action

    def note_sent(self, lease: Lease, action: LetterAction, sent_until_ms: int) -> LetterAction:
        """Note the request, right before it goes out."""

        def change(connection: sa.Connection, present: LetterAction, now_ms: int) -> None:
            _update(connection, action.action_id, sent_until_ms=sent_until_ms)

        return self._change(lease, action, change)

    def finish(self, lease: Lease, action: LetterAction) -> LetterAction:
        """Note that its rows are in the table."""

        def change(connection: sa.Connection, present: LetterAction, now_ms: int) -> None:
            after = step(TRANSITIONS, present.state, ReplayEvent.LOADED, subject=f"replay {present.label}")
            _move(connection, present, LetterState.REPLAYED, "", now_ms)
            _update(connection, action.action_id, state=after.value, finished_at_ms=now_ms)

        return self._change(lease, action, change)

    def reopen(self, lease: Lease, action: LetterAction, detail: str) -> LetterAction:
        """Note that its rows are not in the table, and why. Call this only where no load is taken under the
        label any more."""

        def change(connection: sa.Connection, present: LetterAction, now_ms: int) -> None:
            after = step(TRANSITIONS, present.state, ReplayEvent.REOPEN, subject=f"replay {present.label}")
            _move(connection, present, LetterState.OPEN, detail, now_ms)
            _update(connection, action.action_id, state=after.value, finished_at_ms=now_ms, detail=detail)

        return self._change(lease, action, change)

    def acknowledged(self, lease: Lease, action: LetterAction) -> LetterAction:
        """Note that the sink may forget the label."""

        def change(connection: sa.Connection, present: LetterAction, now_ms: int) -> None:
            _update(connection, action.action_id, acknowledged=1)

        return self._change(lease, action, change)

    def refused_again(self, lease: Lease, job_id: str, chosen: Mapping[str, Places], detail: str) -> None:
        """Note of OPEN letters why they were refused again. They stay OPEN."""

        def work(connection: sa.Connection, now_ms: int) -> None:
            for kept in letter_sets(connection, job_id, (LetterState.OPEN,), chosen.keys()):
                places = chosen.get(kept.label, Places())
                split(connection, job_id, kept, places, LetterState.OPEN, now_ms=now_ms, detail=detail)

        self._leases.write(lease, f"note refusals of {job_id}", type(None), work)

    def drop(self, job_id: str, chosen: Mapping[str, Places], who: str, why: str) -> LetterAction | None:
        """Give up those of the chosen records that are OPEN or UNCERTAIN; None where none is. The records
        stay in their topics."""

        def work(connection: sa.Connection) -> _Made:
            _locked_incarnation(connection, job_id)
            now_ms = self._ledger.now_ms(connection)
            action = _insert(connection, job_id, ActionKind.DROP, ReplayState.DROPPED, who, why, now_ms)
            taken = _take(connection, job_id, chosen, LetterState.DROPPED, action, now_ms)
            if not taken:
                connection.execute(sa.delete(_a).where(_a.c.action_id == action))
                return _Made(None)
            _update(connection, action, records=taken, finished_at_ms=now_ms)
            return _Made(_get(connection, action))

        return self._ledger.write(f"drop dead letters of {job_id}", _Made, work).action

    def _change(
        self,
        lease: Lease,
        action: LetterAction,
        change: Callable[[sa.Connection, LetterAction, int], None],
    ) -> LetterAction:
        def work(connection: sa.Connection, now_ms: int) -> LetterAction:
            change(connection, _get(connection, action.action_id), now_ms)
            return _get(connection, action.action_id)

        return self._leases.write(lease, f"note the replay {action.label}", LetterAction, work)


def reset_dead_letters(
    connection: sa.Connection, job_id: str, begins_at: Offsets | None, now_ms: int, *, abandon: bool
) -> None:
    """Note that the job begins anew at these offsets, in the transaction that resets it. Raises Refused,
    unless it is abandoned, where the outcome of a replay is not noted."""
    pending = _of_job(job_id).where(_a.c.state == ReplayState.SENDING.value)
    replays = [_action(row) for row in connection.execute(pending)]
    if replays and not abandon:
        raise Refused(
            f"job {job_id} replays dead letters, and it is not known whether they are loaded",
            expected="none",
            found=", ".join(action.label for action in replays),
            action=f"`rtolap loader dead-letters replay {job_id}` settles them; or abandon them: their rows "
            "may be in the table, or come yet",
        )
    for action in replays:
        after = step(TRANSITIONS, action.state, ReplayEvent.ABANDON, subject=f"replay {action.label}")
        _move(connection, action, LetterState.UNCERTAIN, "its replay was abandoned", now_ms)
        _update(connection, action.action_id, state=after.value, finished_at_ms=now_ms)
    supersede(connection, job_id, begins_at, now_ms)


def _locked_incarnation(connection: sa.Connection, job_id: str) -> int:
    """Return the incarnation of the job, which no reset changes before the transaction ends."""
    locked = sa.select(_j.c.incarnation).where(_j.c.job_id == job_id).with_for_update()
    if (incarnation := connection.scalar(locked)) is None:
        raise NotFound(f"there is no job {job_id}")
    return int(incarnation)


def _take(
    connection: sa.Connection,
    job_id: str,
    chosen: Mapping[str, Places],
    state: LetterState,
    action_id: int,
    now_ms: int,
) -> int:
    """Move chosen letters to a state, by an action; return how many were there to be moved."""
    takeable: tuple[LetterState, ...] = (LetterState.OPEN,)
    if state is LetterState.DROPPED:
        takeable += (LetterState.UNCERTAIN,)
    taken = 0
    for kept in letter_sets(connection, job_id, takeable, chosen.keys()):
        places = chosen.get(kept.label, Places())
        taken += len(split(connection, job_id, kept, places, state, now_ms=now_ms, action_id=action_id))
    return taken


def _move(
    connection: sa.Connection, action: LetterAction, state: LetterState, detail: str, now_ms: int
) -> None:
    """Move the letters of a replay that is under way."""
    for kept in letter_sets(connection, action.job_id, (LetterState.REPLAYING,)):
        if kept.action_id == action.action_id:
            split(
                connection,
                action.job_id,
                kept,
                kept.places,
                state,
                now_ms=now_ms,
                action_id=action.action_id,
                detail=detail,
            )


def _insert(
    connection: sa.Connection,
    job_id: str,
    kind: ActionKind,
    state: ReplayState,
    who: str,
    detail: str,
    now_ms: int,
) -> int:
    values = {"job_id": job_id, "kind": kind.value, "state": state.value, "who": who, "detail": detail}
    numbers = {"records": 0, "sent_until_ms": 0, "acknowledged": 0, "began_at_ms": now_ms}
    made = connection.execute(sa.insert(_a).values(label="", **values, **numbers))
    (number,) = made.inserted_primary_key or (0,)
    kept = _a.c.job_id == job_id
    beyond = sa.select(_a.c.action_id).where(kept).order_by(_a.c.action_id.desc()).offset(ACTIONS_KEPT_MAX)
    if (oldest := connection.scalar(beyond.limit(1))) is not None:
        ended = kept & (_a.c.action_id <= oldest) & (_a.c.state != ReplayState.SENDING.value)
        connection.execute(sa.delete(_a).where(ended))
    return int(number)


def _update(connection: sa.Connection, action_id: int, **values: object) -> None:
    connection.execute(sa.update(_a).where(_a.c.action_id == action_id).values(**values))


def _of_job(job_id: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(_a).where(_a.c.job_id == job_id)


def _get(connection: sa.Connection, action_id: int) -> LetterAction:
    row = connection.execute(sa.select(_a).where(_a.c.action_id == action_id)).one_or_none()
    if row is None:
        raise NotFound(f"there is no replay {action_id}")
    return _action(row)


def _action(row: sa.Row[tuple[object, ...]]) -> LetterAction:
    return convert(schema.values(row._mapping), LetterAction)
