"""A job becomes a divided one, under the lease of the job, numbered by what a crash leaves behind:

    1. begin a run of the whole job    a new job has its first record, at its start offsets
    2. settle what was recorded        as each owner of an undivided job does first; nothing is read
    3. wait until that is visible      the records that go are the witnesses of what can be read
    4. divide, in one transaction      `metastore.load_shares` has its parts

A crash before 4 leaves an undivided job, whose next owner begins again with 1. A crash after 4 leaves a
divided one. In between, no other process reads the topic for this job: it would need the job's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rtolap.base.errors import Unavailable
from rtolap.stored.loader.job import Ownership, label_of, read_config, write_config
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.reset import left_labels
from rtolap.stored.loader.settle import Settler
from rtolap.stored.metastore.load_jobs import LoadJob
from rtolap.stored.metastore.load_shares import LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecord

log = logging.getLogger(__name__)


class JobDivider:
    """Divides one job in steps. Close it once that is done or given up.

    Args:
        begin_whole: begins a run of the whole job, under the lease of the job.
        shares: returns the number of shares for so many partitions.
    """

    def __init__(
        self,
        shares_of_ledger: LoadShares,
        ownership: Ownership,
        begin_whole: Callable[[Ownership], LoadJobRun],
        shares: Callable[[int], int],
    ) -> None:
        self._ledger = shares_of_ledger
        self._ownership = ownership
        self._begin_whole = begin_whole
        self._shares = shares
        self._work: LoadJobRun | None = None
        self._settler: Settler | None = None

    def step(self, job: LoadJob) -> bool:
        """Do what can be done now; return True once the job is divided.

        Raises Stopped; Unavailable and CommitUnknown, after which it is called again; NotLeader.
        """
        if self._work is None or self._settler is None:
            self._work = self._begin_whole(self._ownership)
            self._settler = self._work.settler()
        work, settler = self._work, self._settler
        while len(work.window):
            if (
                work.settle_once(settler, 0.0, pause_s=lambda tries: min(10.0, 0.1 * 2 ** min(tries, 10)))
                is None
            ):
                return False  # the next attempt is not due yet
        if work.committer.run_once(work.clock.now_ms()) is None:
            raise Unavailable(f"job {job.job_id} has no loaded batch yet")
        last = work.last_record()
        if work.visible.sequence < last.sequence_id:
            return False
        shares = self._shares(len(work.source.partitions()))

        def label(number: int) -> str:
            return label_of(job.job_id, job.incarnation, 0, number)

        def config(records: tuple[OffsetsRecord, ...]) -> str:
            left = left_labels(records, job.incarnation)
            present = read_config(job)
            return write_config(present if left is None else present.leaving((left,)))

        if self._ledger.divide(self._ownership.lease, shares, label=label, config=config):
            log.info("the partitions of job %s are divided into %d shares", job.job_id, shares)
        return True

    def close(self) -> None:
        if self._work is not None:
            self._work.source.close()
            self._work = self._settler = None
