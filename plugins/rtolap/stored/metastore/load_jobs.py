"""Jobs of loaders. The life of a job is one pure table:

                    START               PAUSE
         STOPPED ──────────▶ RUNNING ──────────▶ PAUSED
            ▲                 ▲   ▲                │
            │ STOP, RESET     │   └─ RESUME, START ┘
          (any)               │ START
                  FAIL        │
          (any) ──────────▶ FAILED

START, PAUSE, RESUME and STOP are what somebody wants of it: by command, over REST, as its process begins.
FAIL is its owner's word, RESET the next incarnation. What was done before is no error for who repeats it and
changes nothing: of several threads that fail, the first says why. The process of a job that is STOPPED or
FAILED may still be ending, so neither is paused or resumed: that would take back the stop, or the failure
with its reason. A stop that comes first does not hide what the process finds while it ends.

A job is owned by a lease in its own row (`Leases(ledger, schema.load_job)`); whoever owns it writes by its
epoch, and whoever manages jobs changes what is wanted of it. Every change of its state follows the table, by
compare and set: of two at once, the second is judged again, by what the first has left.

A job whose partitions are divided has an owner too, who leads it; its shares are owned one by one
(`load_shares`).

A job that is redefined gets the next incarnation, which is part of its labels: they are not those of the
rows that an earlier one has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import convert
from rtolap.base.errors import CommitConflict, NotFound, Refused
from rtolap.base.transitions import step
from rtolap.model.offsets import Offsets
from rtolap.stored.metastore import schema
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.dead_letters import reset_dead_letters
from rtolap.stored.metastore.leases import Lease, Leases
from rtolap.stored.metastore.offsets import OffsetsRecord, records_of
from rtolap.stored.metastore.schema import checked_name
from rtolap.stored.metastore.schema import load_job as _j
from rtolap.stored.metastore.schema import load_process as _p
from rtolap.stored.metastore.schema import load_share as _s
from rtolap.stored.metastore.schema import offsets_record as _o

CHANGES_TRIED_MAX = 10  # others change a job a few times in its life, not ten times within one change


class LoadJobState(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class LoadJobEvent(StrEnum):
    START = "START"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"
    FAIL = "FAIL"
    RESET = "RESET"


_S, _E = LoadJobState, LoadJobEvent

TRANSITIONS: dict[tuple[LoadJobState, LoadJobEvent], LoadJobState] = {
    (_S.STOPPED, _E.START): _S.RUNNING,
    (_S.FAILED, _E.START): _S.RUNNING,
    (_S.PAUSED, _E.START): _S.RUNNING,
    (_S.RUNNING, _E.START): _S.RUNNING,
    (_S.RUNNING, _E.PAUSE): _S.PAUSED,
    (_S.PAUSED, _E.PAUSE): _S.PAUSED,
    (_S.PAUSED, _E.RESUME): _S.RUNNING,
    (_S.RUNNING, _E.RESUME): _S.RUNNING,
    **{(state, _E.STOP): _S.STOPPED for state in LoadJobState},
    **{(state, _E.FAIL): _S.FAILED for state in LoadJobState},
    **{(state, _E.RESET): _S.STOPPED for state in LoadJobState},
}


def transition(job_id: str, state: LoadJobState, event: LoadJobEvent, *, reason: str = "") -> LoadJobState:
    """Return the next state.

    Raises IllegalTransition naming what is legal, and the present state's `reason`.
    """
    return step(TRANSITIONS, state, event, subject=f"loader {job_id}", history=reason or None)


class LoadJob(msgspec.Struct, frozen=True):
    """A load job.

    Attributes:
        config: the loader's own JSON.
        reason: why the job is in its state.
        lease_until_ms: the end of the owner's lease, by the database's clock.
        shares: number of the shares that its partitions are divided into; None while they are not.
        processes: number of the processes that its owner wants; None before it has said so.
        started_by: the start of its process that has started it last, see `start`; None before the first.
    """

    job_id: str
    incarnation: int
    db: str
    table: str
    topic: str
    config: str
    state: LoadJobState
    reason: str
    owner: str
    epoch: int
    lease_until_ms: int
    shares: int | None = None
    processes: int | None = None
    started_by: str | None = None


Series = tuple[OffsetsRecord, ...]
"""The records of an undivided job, or of one share, in ascending order."""


class LoadJobs:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.leases = Leases(ledger, _j)
        self._share_leases = Leases(ledger, schema.load_share)

    def create(self, job_id: str, db: str, table: str, topic: str, config: str) -> LoadJob:
        """Create a new job, STOPPED and without an owner. Raises CommitConflict if the id exists."""
        for field, name in (("job", job_id), ("database", db), ("table", table), ("topic", topic)):
            checked_name(field, name)
        job = LoadJob(job_id, 1, db, table, topic, config, LoadJobState.STOPPED, "", "", 0, 0)

        def work(connection: sa.Connection) -> LoadJob:
            values = msgspec.structs.asdict(job)
            values["tbl"] = values.pop("table")
            connection.execute(sa.insert(_j).values(**values))
            return job

        return self._ledger.write(f"create job {job_id}", LoadJob, work)

    def remove(self, job: LoadJob) -> None:
        """Take back one that was made and never run. Raises Refused where it is not as it was made any
        more."""

        def work(connection: sa.Connection) -> None:
            present_job = _locked(connection, job.job_id)
            if present_job != job or records_of(connection, job.job_id):  # a divided job has another row
                raise Refused(
                    f"job {job.job_id} has been changed or run since", found=present_job.state.value
                )
            connection.execute(sa.delete(_j).where(_j.c.job_id == job.job_id))

        self._ledger.write(f"remove job {job.job_id}", type(None), work)

    def get(self, job_id: str) -> LoadJob:
        """Return a job. Raises NotFound."""
        return self._ledger.read("read a job", lambda connection: _get(connection, job_id))

    def all(self) -> tuple[LoadJob, ...]:
        def work(connection: sa.Connection) -> tuple[LoadJob, ...]:
            return tuple(_record(row) for row in connection.execute(sa.select(_j).order_by(_j.c.job_id)))

        return self._ledger.read("read the jobs", work)

    def change_state(self, job_id: str, event: LoadJobEvent, reason: str) -> LoadJob:
        """Set the desired state of a job, without a fence: anybody who manages the job may call it, and its
        owner sees the state when it reads next.

        Raises IllegalTransition, which names the legal steps; CommitConflict where others change it all the
        time.
        """
        for _ in range(CHANGES_TRIED_MAX - 1):
            try:
                return self._change_once(job_id, event, reason)
            except CommitConflict:
                continue
        return self._change_once(job_id, event, reason)

    def start(self, job_id: str, by: str, *, again: bool) -> LoadJob:
        """Have a job that is stopped or has failed RUNNING, as its process begins; a paused one stays so.

        Once for each start of the process, `by`: `again`, it may have been killed before or behind that. What
        somebody has wanted of the job since it was started by this stands; a stop before that is overruled.
        """

        def work(connection: sa.Connection) -> LoadJob:
            job = _locked(connection, job_id)
            if again and job.started_by == by:
                return job
            state, reason = job.state, job.reason
            if state in (LoadJobState.STOPPED, LoadJobState.FAILED):
                state, reason = transition(job_id, state, LoadJobEvent.START, reason=reason), ""
            update = sa.update(_j).where(_j.c.job_id == job_id)
            connection.execute(update.values(state=state.value, reason=reason, started_by=by))
            return _get(connection, job_id)

        return self._ledger.write(f"start job {job_id}", LoadJob, work)

    def fail(self, lease: Lease, reason: str) -> None:
        """Fail the job with a reason, by its owner. Raises NotLeader once somebody else owns it."""
        self._fail(self.leases, lease, lease.name, reason)

    def fail_by_share(self, lease: Lease, job_id: str, reason: str) -> None:
        """Fail the job with a reason, by the owner of one of its shares. Raises NotLeader once somebody else
        owns that share."""
        self._fail(self._share_leases, lease, job_id, reason)

    def _fail(self, leases: Leases, lease: Lease, job_id: str, reason: str) -> None:
        def work(connection: sa.Connection, now_ms: int) -> None:
            present = _locked(connection, job_id)  # of several owners that fail, one is the first
            after = transition(job_id, present.state, LoadJobEvent.FAIL, reason=present.reason)
            if after is not present.state:
                _compare_and_set(connection, present, after, reason)

        leases.write(lease, f"fail job {job_id}", type(None), work)

    def reconfigure(self, job_id: str, config: str) -> LoadJob:
        """Change the configuration of what is loaded from now on. Raises Refused while its lease runs."""

        def work(connection: sa.Connection) -> LoadJob:
            job = _locked(connection, job_id)
            self._check_unowned(connection, job, "configured now")
            connection.execute(sa.update(_j).where(_j.c.job_id == job_id).values(config=config))
            return _get(connection, job_id)

        return self._ledger.write(f"configure job {job_id}", LoadJob, work)

    def define_again(
        self,
        job_id: str,
        config: Callable[[tuple[Series, ...]], str],
        *,
        abandon: bool = False,
        begins_at: Callable[[tuple[Series, ...]], Offsets | None] = lambda series: None,
    ) -> LoadJob:
        """Define the next incarnation of a job without an owner. It remembers no loaded batch, and is not
        divided. `config` is made from the present records: of each share where the job is divided.
        `begins_at` says from where the new incarnation reads, None: as its definition says. It reads dead
        letters at or beyond that again, so they cannot be replayed.

        Raises Refused while its lease runs; and, unless they are abandoned, while batches were sent and are
        not known to be loaded, or replays: their requests may still be under way, though nobody owns the
        job. The epoch is raised, so that who had it writes nothing more.
        """

        def work(connection: sa.Connection) -> LoadJob:
            job = _locked(connection, job_id)
            self._check_unowned(connection, job, "redefined")
            names = _names(connection, job)
            series = tuple(records_of(connection, name) for name in names)
            unknown = [
                record.label
                for records in series
                for record in records
                if record.attempts and not record.loaded
            ]
            if unknown and not abandon:
                raise Refused(
                    f"job {job_id} has sent batches, and it is not known whether they are loaded",
                    expected="none",
                    found=", ".join(unknown),
                    action="start it again, which settles them; or abandon them: their rows may be in the "
                    "table, or come yet",
                )
            after = transition(job_id, job.state, LoadJobEvent.RESET, reason=job.reason)
            update = sa.update(_j).where(_j.c.job_id == job_id)
            connection.execute(
                update.values(
                    incarnation=job.incarnation + 1,
                    config=config(series),
                    epoch=job.epoch + 1,
                    owner="",
                    state=after.value,
                    reason="",
                    shares=None,
                    processes=None,
                )
            )
            now_ms = self._ledger.now_ms(connection)
            reset_dead_letters(connection, job_id, begins_at(series), now_ms, abandon=abandon)
            connection.execute(sa.delete(_o).where(_o.c.job_id.in_(names)))
            for table in (_s, _p):  # who had one of them finds no lease of it any more
                connection.execute(sa.delete(table).where(table.c.job_id == job_id))
            return _get(connection, job_id)

        return self._ledger.write(f"redefine job {job_id}", LoadJob, work)

    def _check_unowned(self, connection: sa.Connection, job: LoadJob, what: str) -> None:
        """Raise Refused while a lease of the job, of a share of it or of a process of it runs."""
        now_ms = self._ledger.now_ms(connection)
        owners = [job.owner] if job.lease_until_ms > now_ms else []
        for table in (_s, _p):
            running = sa.select(table.c.owner).where(
                table.c.job_id == job.job_id, table.c.lease_until_ms > now_ms
            )
            owners += connection.scalars(running.with_for_update())
        if owners:
            found = ", ".join(f"it is {owner}'s" for owner in dict.fromkeys(owners))
            raise Refused(f"job {job.job_id} cannot be {what}", found=found)

    def _change_once(self, job_id: str, event: LoadJobEvent, reason: str) -> LoadJob:
        present = self.get(job_id)
        after = transition(job_id, present.state, event, reason=present.reason)
        if after is present.state:
            return present

        def work(connection: sa.Connection) -> LoadJob:
            _compare_and_set(connection, present, after, reason)
            return _get(connection, job_id)

        return self._ledger.write(f"{event.lower()} job {job_id}", LoadJob, work)


def _compare_and_set(connection: sa.Connection, present: LoadJob, after: LoadJobState, reason: str) -> None:
    """Compare and set the state. Raises CommitConflict where the job is in another state by now."""
    before = present.state
    if before is LoadJobState.FAILED and after is LoadJobState.STOPPED:
        reason = f"{reason}; it had failed: {present.reason}"
    update = sa.update(_j).where(_j.c.job_id == present.job_id, _j.c.state == before.value)
    if connection.execute(update.values(state=after.value, reason=reason)).rowcount != 1:
        raise CommitConflict(f"job {present.job_id} has changed meanwhile", expected=before.value)


def _names(connection: sa.Connection, job: LoadJob) -> list[str]:
    """Return the ids under which the job's records stand: its own, or those of its shares."""
    if job.shares is None:
        return [job.job_id]
    shares = sa.select(_s.c.share_id).where(_s.c.job_id == job.job_id).order_by(_s.c.number)
    return list(connection.scalars(shares))


# Every round of a process reads it: to put it together each time takes longer than to send it.
_FIND: sa.Select[tuple[object, ...]] = sa.select(_j).where(_j.c.job_id == sa.bindparam("of_job"))
_LOCK = _FIND.with_for_update()


def _locked(connection: sa.Connection, job_id: str) -> LoadJob:
    """Return the job, which nobody else changes before the transaction ends."""
    return _record(connection.execute(_LOCK, {"of_job": job_id}).one_or_none(), job_id)


def _get(connection: sa.Connection, job_id: str) -> LoadJob:
    return _record(connection.execute(_FIND, {"of_job": job_id}).one_or_none(), job_id)


def _record(row: sa.Row[tuple[object, ...]] | None, job_id: str = "") -> LoadJob:
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    values = schema.values(row._mapping)
    values["table"] = values.pop("tbl")
    return convert(values, LoadJob)
