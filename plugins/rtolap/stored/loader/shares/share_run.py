"""A share in this process: waits for its lease, then loads it as a job is loaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from rtolap.base.errors import NotLeader, NotYet, RtolapError
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED
from rtolap.stored.loader.job import Ownership, Portion, SharedResources
from rtolap.stored.loader.job_progress import Counts
from rtolap.stored.loader.job_run import LoadJobRun, begin_owned, released_unless_begun
from rtolap.stored.loader.process import COMMIT_S, LoaderProcess, retrying
from rtolap.stored.loader.shares.portion import configured_for_share
from rtolap.stored.loader.states import Stopped
from rtolap.stored.metastore.load_shares import LoadShare

log = logging.getLogger(__name__)

_TAKE_AGAIN_S = 0.2


def begin_share(share: LoadShare, shares: int, owner: str, resources: SharedResources) -> LoadJobRun:
    """Begin a run of a share. Raises NotYet while another process owns it, else as `job_run.begin`."""
    leases = resources.shares.leases
    if not leases.is_free(share.share_id, owner):
        raise NotYet(f"share {share.share_id} is not free", found=f"{share.owner}'s")
    ownership = Ownership(leases, share.share_id, owner)
    with released_unless_begun(ownership):
        return begin_owned(
            ownership,
            share.job_id,
            replace(resources.job, records=resources.records),
            Portion(share.number, shares),
            configured=configured_for_share(shares),
            check_rights=resources.check_rights,
        )


class ShareRun:
    """The run of one share, in threads of its own.

    Attributes:
        share: as it was when the run began.
        process: the roles of the share, once it is owned.
        last_error: why it is not owned yet.
    """

    def __init__(
        self,
        share: LoadShare,
        begin: Callable[[LoadShare], LoadJobRun],
        *,
        commit_s: float = COMMIT_S,
    ) -> None:
        self.share = share
        self.process: LoaderProcess | None = None
        self.last_error = ""
        self._begin = begin
        self._commit_s = commit_s
        self._stopping = threading.Event()
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"share-{share.number}", daemon=True)
        self._thread.start()

    @property
    def code(self) -> int | None:
        """Return how the run has ended; None while it goes on."""
        return None if self._thread.is_alive() else self._code

    @property
    def counts(self) -> Counts:
        """Return what the run has done."""
        process = self.process
        return Counts() if process is None else process.work.progress.shown(process.work.clock).counts

    def stop(self) -> None:
        self._stopping.set()
        if (process := self.process) is not None:
            process.stop()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            work = self._owned()
            if work is None:
                self._code = EXIT_STOPPED
                return
            self.process = process = LoaderProcess(work, commit_s=self._commit_s)
            if self._stopping.is_set():
                process.stop()
            self._code = process.run()
        except NotLeader as error:
            log.warning("share %d is another process's: %s", self.share.number, error)
            self._code = EXIT_OWNED
        except Stopped as error:
            log.error("share %d: %s", self.share.number, error)
            self._code = EXIT_FAILED
        except Exception as error:
            log.exception("share %d ended unexpectedly", self.share.number)
            self.last_error = repr(error)
            self._code = EXIT_OWNED

    def _owned(self) -> LoadJobRun | None:
        """Return the run, once the share is free and all that it needs answers; None when stopped before."""
        again = retrying(self._stopping)

        def begin() -> LoadJobRun:
            try:
                return self._begin(self.share)
            except RtolapError as error:
                self.last_error = str(error)
                raise

        while not self._stopping.is_set():
            try:
                work: LoadJobRun | None = again(begin)
            except NotYet:
                self._stopping.wait(_TAKE_AGAIN_S)
            else:
                self.last_error = ""
                return work
        return None


class ThreadedRuns:
    """The runs of the shares of this process."""

    def __init__(self, begin: Callable[[LoadShare], LoadJobRun], *, commit_s: float = COMMIT_S) -> None:
        self._begin = begin
        self._commit_s = commit_s
        self._runs: dict[int, ShareRun] = {}
        self._counts_before = Counts()
        self._lock = threading.Lock()

    def take(self, share: LoadShare) -> None:
        with self._lock:
            self._runs[share.number] = ShareRun(share, self._begin, commit_s=self._commit_s)

    def give_up(self, number: int) -> None:
        self.present()[number].stop()

    def ended(self) -> set[int]:
        return {number for number, run in self.present().items() if run.code is not None}

    def forget(self, number: int) -> None:
        with self._lock:
            self._counts_before += self._runs.pop(number).counts

    def counts(self) -> Counts:
        """Return what all runs have done, also those that are forgotten: it never falls."""
        with self._lock:
            return sum((run.counts for run in self._runs.values()), self._counts_before)

    def present(self) -> dict[int, ShareRun]:
        """Return the runs that are not forgotten, by share."""
        with self._lock:
            return dict(self._runs)
