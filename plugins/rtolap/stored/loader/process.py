"""A job as a supervised process: a thread for each role, all ended together.

    consume ──▶ window ──▶ send × parallel        commit        keep: lease, columns, what is wanted
                                                  report: to its application, where it names one
                  partitions: made ahead in the sink, where that makes none itself; it never stops the others

A role that is stopped for good ends the process with the reason in the job; a lost lease ends it without a
word to the job, which is somebody else's now; what may pass is tried again, with jitter.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from tenacity import (
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from rtolap.base.errors import CommitUnknown, NotLeader, RtolapError, Unavailable
from rtolap.base.stopping import wait_awake
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED
from rtolap.stored.loader.job import LEASE_MS
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.operator import Operator
from rtolap.stored.loader.partition_role import PartitionRole
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobState

log = logging.getLogger(__name__)

POLL_S = 0.5
COMMIT_S = 2.0
REPORT_S = 1.0
KEEP_S = LEASE_MS / 1000 / 3
FOLLOW_S = 1.0
COLUMNS_CHECK_S = 10.0
GRACE_S = 15.0
_PAUSE_S, _PAUSE_MAX_S = 0.1, 10.0


def is_passing(error: BaseException) -> bool:
    """Return True if an error may pass by itself: a peer that is away, a write that is in doubt. Not a lost
    lease.
    """
    return isinstance(error, (Unavailable, CommitUnknown)) and not isinstance(error, NotLeader)


def retrying(stopping: threading.Event) -> Retrying:
    """Return a retry policy for passing errors, with jitter. Once the process stops, it returns None."""
    return Retrying(
        retry=retry_if_exception(is_passing),
        wait=wait_random_exponential(multiplier=_PAUSE_S, max=_PAUSE_MAX_S),
        stop=stop_when_event_set(stopping),
        sleep=sleep_using_event(stopping),
        retry_error_callback=lambda state: None,
    )


def pause_s(tries: int) -> float:
    """Return the pause between two attempts at a batch. `tries`: the attempts before, in a row."""
    return random.uniform(0.0, min(_PAUSE_MAX_S, _PAUSE_S * 2 ** min(tries, 16)))


class LoaderProcess:
    """Owns the job from construction on. `run` returns the exit code."""

    def __init__(
        self,
        work: LoadJobRun,
        *,
        commit_s: float = COMMIT_S,
        operator: Operator | None = None,
        partitions: PartitionRole | None = None,
    ) -> None:
        self.work = work
        self.partitions = partitions
        self._operator = operator
        self._commit_s = commit_s
        self._stopping = threading.Event()
        self._paused = threading.Event()
        self._resting = threading.Event()  # the consume role has seen that it is paused
        self._lock = threading.Lock()
        self._code: int | None = None
        self._columns_due_s = work.clock.monotonic_s() + COLUMNS_CHECK_S
        self._renew_due_s = work.clock.monotonic_s()

    @property
    def phase(self) -> str:
        """Return the phase of a running loader, for people."""
        if self._stopping.is_set():
            return "stopping"
        if self.work.window.is_recovering:
            return "recovering"
        if self._paused.is_set():
            return "paused" if self._resting.is_set() else "pausing"
        return "loading"

    def stop(self) -> None:
        """End the process. Requests under way finish, or are left to recovery. The job's state stays."""
        self._end(EXIT_STOPPED)

    def want(self, event: LoadJobEvent) -> None:
        """Write the requested state to the ledger, and follow it. Raises IllegalTransition."""
        self.work.change_state(event, f"asked to {event.lower()}")
        self.follow()

    def run(self) -> int:
        roles: list[tuple[str, Callable[[], None]]] = [
            ("consume", self._consume),
            ("commit", self._commit),
            ("keep", self._keep),
            *((f"send-{number}", self._send) for number in range(self.work.loader.parallel)),
        ]
        if (operator := self._operator) is not None:
            roles.append(("report", lambda: self._report(operator)))
        if (partitions := self.partitions) is not None:
            roles.append(("partitions", lambda: partitions.run(self._stopping)))
        threads = [
            threading.Thread(target=self._guarded, args=(name, role), name=name, daemon=True)
            for name, role in roles
        ]
        for thread in threads:
            thread.start()
        wait_awake(self._stopping)
        deadline_s = self.work.clock.monotonic_s() + GRACE_S
        for thread in threads:
            # a request that is under way may last longer: its batch is left to recovery
            thread.join(max(0.0, deadline_s - self.work.clock.monotonic_s()))
        self._last_words()
        assert self._code is not None, "set before stopping was"
        return self._code

    def _last_words(self) -> None:
        """Commit the settled batches and release the lease, so that the next owner need not wait. Neither is
        needed for exactness.
        """
        if self._code == EXIT_OWNED:
            return
        for act in (self._commit_once, self.work.ownership.release):
            try:
                act()
            except RtolapError as error:
                log.warning("not done at the end: %s", error)

    # --- roles ----------------------------------------------------------------------------------------

    def _consume(self) -> None:
        again = retrying(self._stopping)
        while not self._stopping.is_set():
            if self._paused.is_set():
                self._resting.set()
                self._stopping.wait(POLL_S)
            else:
                self._resting.clear()
                again(self._noting, lambda: self.work.source.step(POLL_S))
        self.work.source.close()

    def _send(self) -> None:
        settler = self.work.settler()
        if self.partitions is not None:
            self.partitions.wait_first(self._stopping)
        again = retrying(self._stopping)
        while not self._stopping.is_set():
            again(self._noting, lambda: self.work.settle_once(settler, POLL_S, pause_s=pause_s))

    def _commit(self) -> None:
        while not self._stopping.wait(self._commit_s):
            self._passing(self._commit_once)

    def _commit_once(self) -> None:
        self.work.progress.times.contiguous(self.work.committer.run_once(self.work.clock.now_ms()))

    def _report(self, operator: Operator) -> None:
        while True:
            self._passing(operator.run_once)
            if problem := operator.problem:
                self.work.progress.error(problem)
            if self._stopping.wait(REPORT_S):
                return

    def _keep(self) -> None:
        while True:
            if self.work.clock.monotonic_s() >= self._renew_due_s:
                self._passing(self._renew)
            self._passing(self.follow)
            if self.work.clock.monotonic_s() >= self._columns_due_s:
                self._columns_due_s = self.work.clock.monotonic_s() + COLUMNS_CHECK_S
                self._look_at_columns()
            if self._stopping.wait(FOLLOW_S):
                return

    def _renew(self) -> None:
        """Renew the lease. That is a write, so it is not done as often as the wanted state is read."""
        self.work.ownership.renew()
        self._renew_due_s = self.work.clock.monotonic_s() + KEEP_S

    def _look_at_columns(self) -> None:
        """Refresh the columns. The code that sends batches judges whether a sink's refusal is final."""
        try:
            if self.work.columns.refresh():
                log.info("the columns of %s have changed", self.work.loader.table)
        except Stopped:
            raise
        except (RtolapError, OSError) as error:
            self.work.progress.error(str(error))

    def follow(self) -> None:
        """Follow the state that the ledger requests now."""
        match self.work.wanted():
            case LoadJobState.RUNNING:
                self._paused.clear()
            case LoadJobState.PAUSED:
                self._paused.set()
            case LoadJobState.STOPPED:
                self._end(EXIT_STOPPED)
            case LoadJobState.FAILED:  # by another thread of this process, which may not have ended it yet
                self._end(EXIT_FAILED)

    def _passing(self, act: Callable[[], object]) -> object:
        """Run `act`; report an error that may pass, as it is retried with the next round."""
        try:
            return act()
        except (RtolapError, OSError) as error:
            if not (is_passing(error) or isinstance(error, OSError)):
                raise
            self.work.progress.error(str(error))
            return None

    def _noting(self, act: Callable[[], object]) -> object:
        try:
            return act()
        except RtolapError as error:
            if is_passing(error):
                self.work.progress.error(str(error))
            raise

    # --- ends -----------------------------------------------------------------------------------------

    def _guarded(self, name: str, role: Callable[[], None]) -> None:
        try:
            role()
        except NotLeader as error:
            log.error("%s: the job is somebody else's: %s", name, error)
            self._end(EXIT_OWNED)
        except Stopped as stopped:
            self._fail(name, stopped)
        except Exception as error:
            log.exception("%s ended unexpectedly", name)
            self._fail(name, Stopped(StopCause.BROKEN, f"{name} ended unexpectedly", found=repr(error)))

    def _fail(self, name: str, stopped: Stopped) -> None:
        log.error("%s: %s", name, stopped)
        self.work.progress.error(str(stopped))
        try:
            self.work.fail(stopped)
        except NotLeader as error:
            # a process that has lost the job may see anything; its finding does not count
            log.error("the job is somebody else's: %s", error)
            self._end(EXIT_OWNED)
            return
        except RtolapError as error:
            log.error("why the job has failed could not be noted: %s", error)
        self._end(EXIT_FAILED)

    def _end(self, code: int) -> None:
        with self._lock:
            self._code = code if self._code is None else self._code
        self._stopping.set()
