"""The workers of one service: started on demand, used again, replaced after any doubt, bounded in all."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.metrics import Family, Metrics
from rtolap.query.cancel import Cancellation
from rtolap.query.engine import SPILL_FOLDER
from rtolap.query.engine_session import EngineSession, EngineSessions
from rtolap.query.spills.folder import Spills
from rtolap.query.workers.plans import CatalogueTexts
from rtolap.query.workers.process import WorkerOptions
from rtolap.query.workers.session import DEAF, DIED, DISK, DOUBTFUL, LEFT, MEMORY, SUM, WorkerSession
from rtolap.query.workers.starter import Starter
from rtolap.query.workers.worker import Worker, WorkerGone

log = logging.getLogger(__name__)

IDLE, GROWN, CLOSED = "idle", "grown", "closed"
IDLE_S = 60.0  # without work, after which a worker beyond the warm ones is ended
LOOK_S = 0.05  # between two looks at the memory of all, while statements run
QUIET_LOOKS = 20  # for which looking goes on without statements, before it waits for one

_BEYOND_BYTES = 64 << 20
_WORTH_BYTES = 4 << 20  # of an idle worker: ending it helps
_TRIES = 3  # of a worker for a statement, before its service counts as unwell
_WHY = {
    DEAF: "its statement was ended, and the engine did not hear it",
    LEFT: "nobody waited for its statement any more, and the engine did not hear it",
    MEMORY: "its statement needed more memory than it may have",
    DISK: "its statement left too little of the disk free",
    SUM: "all queries together needed more memory than they may have, and it had the most",
    DOUBTFUL: "the engine failed",
    DIED: "its process ended",
    IDLE: "it had nothing to do",
    GROWN: "it kept much of the memory of statements before",
    CLOSED: "the service is being stopped",
}


def bound_bytes(memory_bytes: int) -> int:
    """Return the bound on the private memory of one worker, and of all of them together.

    Sorting, the engine has more than three times its own limit from the system, and twice as much there. So
    its limit is half of `memory_bytes`: it spills before it is ended.
    """
    return 2 * memory_bytes + _BEYOND_BYTES


class WorkerPool(EngineSessions):
    """A pool of worker processes that run statements. Thread-safe.

    `workers_max` is the number of turns, so admission bounds the workers.
    """

    def __init__(
        self,
        memory_bytes: int,
        threads: int,
        workers_max: int,
        metrics: Metrics,
        *,
        spill_folder: str = SPILL_FOLDER,
        spill_free_bytes_min: int = 0,
        warm: int | None = None,
    ) -> None:
        """Start the warm workers, without waiting until they are ready.

        Args:
            spill_free_bytes_min: bytes that stay free on the disk of `spill_folder`.
            warm: number of workers that stay while no statement needs them; None: one for each processor.
                While all workers are busy one more is started, so that the next statement does not wait for
                it.
        """
        self.bound_bytes = bound_bytes(memory_bytes)
        self._grown_bytes = memory_bytes // 2 + _BEYOND_BYTES
        self._workers_max = workers_max
        self._warm = min(warm if warm is not None else len(os.sched_getaffinity(0)), workers_max)
        self._spills = Spills(Path(spill_folder), spill_free_bytes_min)
        self._spills.clear_left()
        self._starter = Starter(WorkerOptions(memory_bytes // 2, threads, self.bound_bytes, spill_folder))
        self._changed = threading.Condition()
        self._idle: list[Worker] = []  # the one that was used last is used first
        self._working: set[Worker] = set()
        self._number = 0
        self._started = 0
        self._ended: Counter[str] = Counter()
        self._closed = False
        self._catalogues = CatalogueTexts()
        metrics.sampled(lambda: self._sample(metrics))
        self._keep_warm()
        self._watch = threading.Thread(target=self._look, name="worker-memory", daemon=True)
        self._watch.start()

    def session(self, ending: Cancellation) -> EngineSession:
        """Return a session. Raises what ended the statement, or Unavailable."""
        unborn = 0
        servers: set[int] = set()  # fork servers that ended before they made a worker: a failure each
        while unborn + len(servers) < _TRIES:
            worker = self._take()
            is_new = worker.pid is None
            try:
                worker.wait_ready(ending)
                session = WorkerSession(
                    *(worker, self._next(), ending, self._give_back, self.bound_bytes, self._catalogues)
                )
            except WorkerGone:
                if is_new and self._starter.has_ended(worker.server_number):
                    servers.add(worker.server_number)
                else:
                    unborn += is_new
                self._give_back(worker, worker.killed or DIED)
            except RtolapError:
                if worker.pid is None and worker.killed is None:  # it is starting for another statement
                    self._give_back(worker, None)
                else:
                    self._give_back(worker, worker.killed or DOUBTFUL)
                raise
            else:
                return session
        raise Unavailable(
            "no worker for the query", found="they end as they begin", action="look into the log"
        )

    def _next(self) -> int:
        with self._changed:
            self._number += 1
            return self._number

    def _take(self) -> Worker:
        grown: list[Worker] = []
        try:
            with self._changed:
                if self._closed:
                    raise Unavailable("the service is being stopped")
                while self._idle:
                    worker = self._idle.pop()
                    self._working.add(worker)
                    if worker.retained_bytes() <= self._grown_bytes:
                        break
                    grown.append(worker)
                else:
                    worker = self._start()
                    self._working.add(worker)
                if len(self._working) == 1:
                    self._changed.notify_all()  # a thread looks at their memory
            self._keep_warm()
            return worker
        finally:
            for grown_worker in grown:
                self._give_back(grown_worker, GROWN)

    def _start(self) -> Worker:
        worker = Worker(*self._starter.start())
        self._started += 1
        return worker

    def _give_back(self, worker: Worker, reason: str | None) -> int | None:
        """Take the worker back.

        Return the exit status of its process, if that has ended by itself and the status is known.

        Args:
            reason: why the worker cannot be used again; None if it can.
        """
        status = None
        with self._changed:
            self._working.discard(worker)
            if reason is None and not self._closed:
                worker.idle_since_s = time.monotonic()
                self._idle.append(worker)
        if reason is not None or self._closed:
            status = self._end(worker, reason or CLOSED)
            self._keep_warm()
        return status

    def _end(self, worker: Worker, reason: str) -> int | None:
        by_itself = reason == DIED
        worker.kill(reason)
        pid = worker.pid
        status = self._starter.status_of(pid) if by_itself and pid is not None else None
        worker.close()
        with self._changed:
            self._ended[reason] += 1
        if pid is not None:
            self._spills.remove(pid)
        if reason not in (IDLE, CLOSED):
            how = "" if status is None else f", with status {status}"
            log.warning("worker %s is replaced: %s%s", pid or "that starts", _WHY.get(reason, reason), how)
        return status

    def _keep_warm(self) -> None:
        """Start missing warm workers, without waiting until they are ready."""
        with self._changed:
            try:
                while not self._closed and self._wants_more():
                    self._idle.insert(0, self._start())
            except Unavailable as error:  # the next statement gets the error
                log.warning("%s", error)

    def _wants_more(self) -> bool:
        workers = len(self._idle) + len(self._working)
        return workers < self._warm or (self._warm > 0 and not self._idle and workers < self._workers_max)

    def _look(self) -> None:
        quiet = 0
        while True:
            with self._changed:
                quiet = 0 if self._working else quiet + 1
                if quiet > QUIET_LOOKS:
                    is_surplus = len(self._idle) > self._warm
                    self._changed.wait_for(
                        lambda: self._closed or self._working, IDLE_S / 4 if is_surplus else None
                    )
                else:
                    self._changed.wait_for(lambda: self._closed, LOOK_S)
                if self._closed:
                    return
                working, idle = list(self._working), list(self._idle)
            try:
                self._bound_sum(working, idle)
                self._bound_disk(working)
                self._end_surplus()
            except Exception:  # one look that fails must not end the watch
                log.exception("what the workers take could not be looked at")

    def _bound_sum(self, working: list[Worker], idle: list[Worker]) -> None:
        taken = {worker: worker.private_bytes() for worker in (*working, *idle)}
        if sum(taken.values()) <= self.bound_bytes:
            return
        largest = max(idle, key=lambda worker: taken[worker], default=None)
        if largest is not None and taken[largest] >= _WORTH_BYTES:  # what no statement uses goes first
            with self._changed:
                is_idle = largest in self._idle
                if is_idle:
                    self._idle.remove(largest)
            if is_idle:
                self._end(largest, GROWN)  # without one in its place, which would be ended too
            return
        largest = max(working, key=lambda worker: taken[worker], default=None)
        if largest is not None:
            log.warning(
                "worker %s is ended, it takes %d MiB of %d MiB that all take; expected at most %d MiB",
                *(largest.pid, taken[largest] >> 20, sum(taken.values()) >> 20, self.bound_bytes >> 20),
            )
            largest.kill(SUM)

    def _bound_disk(self, working: list[Worker]) -> None:
        """End the statement that has spilled the most, where the disk has too little free; its files go."""
        missing_bytes = self._spills.missing_bytes()
        if not missing_bytes:
            return
        spilled = {worker: self._spills.bytes_of(worker.pid) for worker in working if not worker.killed}
        largest = max(spilled, key=lambda worker: spilled[worker], default=None)
        if largest is None or not spilled[largest]:
            return
        log.warning(
            "worker %s is ended, it has spilled %d MiB, and the disk lacks %d MiB of what has to be free",
            *(largest.pid, spilled[largest] >> 20, missing_bytes >> 20),
        )
        largest.kill(DISK)

    def _end_surplus(self) -> None:
        before_s = time.monotonic() - IDLE_S
        with self._changed:
            many = len(self._idle) - self._warm
            old = [worker for worker in self._idle[: max(0, many)] if worker.idle_since_s < before_s]
            for worker in old:
                self._idle.remove(worker)
        for worker in old:
            self._end(worker, IDLE)

    def close(self) -> None:
        """End all workers. Statements that run end with an error."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            idle, self._idle = self._idle, []
            working = list(self._working)
        for worker in working:
            worker.kill(CLOSED)
        for worker in idle:
            self._end(worker, CLOSED)
        self._starter.close()
        self._watch.join()  # the folder for spills stays: another service may use it too

    def workers(self) -> dict[str, list[int]]:
        """Return process ids by state: working or idle. A worker that starts has none yet."""
        with self._changed:
            return {
                "working": [worker.pid for worker in self._working if worker.pid is not None],
                "idle": [worker.pid for worker in self._idle if worker.pid is not None],
            }

    @property
    def fork_server_pid(self) -> int | None:
        return self._starter.pid

    def _sample(self, metrics: Metrics) -> Iterable[Family]:
        with self._changed:
            counts = {"working": len(self._working), "idle": len(self._idle)}
            started, ended = self._started, dict(self._ended)
        return _families(metrics, counts, started, ended)


def _families(
    metrics: Metrics, counts: dict[str, int], started: int, ended: dict[str, int]
) -> Iterator[Family]:
    yield metrics.family("workers", [((state,), count) for state, count in counts.items()])
    yield metrics.value("workers_started", started)
    yield metrics.family("workers_ended", [((reason,), count) for reason, count in ended.items()])
