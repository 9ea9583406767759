"""The owner of a divided job: it divides the job, says how many processes it has, and assigns the shares.

Any process of the job may own it; the others try again and again, so another one does once its lease is
over. What an owner writes is fenced by the lease. It decides where a share should be, never who may write to
it: a late or a missing assignment delays a move and doubles nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rtolap.base.errors import NotLeader, NotYet
from rtolap.kafka.interfaces import TopicLog
from rtolap.model.loader import Loader, LoaderProcesses
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job import LEASE_MS, WHOLE, Ownership, SharedResources, read_config
from rtolap.stored.loader.job_run import LoadJobRun, begin_owned
from rtolap.stored.loader.shares.assignment import assign, staying
from rtolap.stored.loader.shares.division import JobDivider
from rtolap.stored.loader.shares.portion import shares_of
from rtolap.stored.loader.shares.process_count import CountState, first_count, next_count
from rtolap.stored.metastore.load_jobs import LoadJob, LoadJobState
from rtolap.stored.metastore.load_shares import Division

log = logging.getLogger(__name__)

RENEW_MS = LEASE_MS // 3
LOOK_MS = 2_000  # between two looks at the lag


class Leader:
    """Leads the job while it owns it. Of one thread.

    Args:
        owner: the process, by its address.
        log_of: returns the topic as it is now; None where it does not answer.
        may_assign: returns False while shares may not be assigned for the first time.
    """

    def __init__(
        self,
        job_id: str,
        owner: str,
        resources: SharedResources,
        log_of: Callable[[], TopicLog | None],
        may_assign: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job_id = job_id
        self._owner = owner
        self._resources = resources
        self._log_of = log_of
        self._may_assign = may_assign
        self._clock = resources.job.clock
        self._divider: JobDivider | None = None
        self._count: CountState | None = None
        self._renewed_s = self._looked_s = float("-inf")
        self.ownership: Ownership | None = None

    def round(self) -> None:
        """Do what is due. Raises Stopped, and errors that may pass."""
        try:
            self._round()
        except NotLeader as error:
            log.warning("job %s is led by another process: %s", self._job_id, error)
            self._end()

    def release(self) -> None:
        """Let another process lead at once."""
        ownership = self.ownership
        self._end()
        if ownership is not None:
            ownership.release()

    def _round(self) -> None:
        now_s = self._clock.monotonic_s()
        if self.ownership is None:
            leases = self._resources.job.jobs.leases
            if not leases.is_free(self._job_id, self._owner):
                return
            try:
                self.ownership = Ownership(leases, self._job_id, self._owner)
            except NotYet:  # another process was faster
                return
            self._renewed_s = now_s
            log.info("process %s leads job %s", self._owner, self._job_id)
        elif now_s - self._renewed_s >= RENEW_MS / 1000:
            self.ownership.renew()
            self._renewed_s = now_s
        job = self._resources.job.jobs.get(self._job_id)
        if job.state in (LoadJobState.STOPPED, LoadJobState.FAILED):
            return
        if job.shares is None:
            if not self._divide(job, self.ownership):
                return
            job = self._resources.job.jobs.get(self._job_id)
        sharing = read_config(job).loader.sharing or LoaderProcesses()
        division = self._resources.shares.division(self._job_id)
        wanted = self._wanted(job, sharing, division, now_s)
        if wanted != job.processes:
            log.info("job %s shall have %d processes", self._job_id, wanted)
            self._resources.shares.want_processes(self.ownership.lease, wanted)
        before = {share.number: share.assigned for share in division.shares}
        after = assign(before, staying((each.number for each in division.processes), wanted))
        changes = {number: process for number, process in after.items() if before[number] != process}
        if changes and self._may_assign():
            log.info("shares of job %s move: %s", self._job_id, changes)
            self._resources.shares.assign(self.ownership.lease, changes)

    def _divide(self, job: LoadJob, ownership: Ownership) -> bool:
        if self._divider is None:
            sharing = read_config(job).loader.sharing or LoaderProcesses()
            self._divider = JobDivider(
                self._resources.shares,
                ownership,
                self._begin_whole,
                lambda partitions: shares_of(sharing, partitions),
            )
        if not self._divider.step(job):
            return False
        self._close_divider()
        return True

    def _begin_whole(self, ownership: Ownership) -> LoadJobRun:
        check_rights = self._resources.check_rights
        return begin_owned(ownership, self._job_id, self._resources.job, WHOLE, check_rights=check_rights)

    def _wanted(self, job: LoadJob, sharing: LoaderProcesses, division: Division, now_s: float) -> int:
        if self._count is None:
            self._count = first_count(sharing, job.processes)
        if sharing.min == sharing.max or now_s - self._looked_s >= LOOK_MS / 1000:
            self._looked_s = now_s
            lag_records = None if sharing.min == sharing.max else self._lag_records(division)
            self._count = next_count(sharing, self._count, lag_records, round(now_s * 1000))
        return self._count.number

    def _lag_records(self, division: Division) -> int | None:
        topic = self._log_of()
        if topic is None:
            return None
        loaded = loaded_offsets(self._resources, division)
        return sum(
            max(0, known.end - max(known.start, loaded.get(partition, 0)))
            for partition, known in topic.ranges.items()
        )

    def _end(self) -> None:
        self._close_divider()
        self.ownership = self._count = None

    def _close_divider(self) -> None:
        if self._divider is not None:
            self._divider.close()
            self._divider = None


def loaded_offsets(resources: SharedResources, division: Division) -> Offsets:
    """Return the offsets up to which all records are in the table, of all shares."""
    loaded: Offsets = {}
    for share in division.shares:
        for record in resources.records.all(share.share_id):
            if not record.loaded:
                break
            loaded |= record.end_offsets
    return loaded


class TopicView:
    """The topic's log, as it is now. For any thread."""

    def __init__(self, resources: SharedResources, loader: Loader) -> None:
        self._consumer = resources.job.open_consumer(loader)

    def log(self) -> TopicLog | None:
        """Return the log; None where the brokers do not give it."""
        return WHOLE.log(self._consumer)

    def close(self) -> None:
        self._consumer.close()
