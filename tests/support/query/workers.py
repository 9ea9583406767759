"""The worker processes of a query service, as tests look at them."""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rtolap.base.metrics import Metrics
from rtolap.query.cancel import Cancellation
from rtolap.query.engine_session import EngineSession, EngineSessions
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.workers.pool import WorkerPool
from rtolap.query.workers.process import memory_of

from tests.support.waiting import until

WAIT_S = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class LentWorkers(EngineSessions):
    """The workers of all services of this process that have none of their own: a fork server takes as long to
    start as most tests of an endpoint. What a service leaves open is ended with it."""

    def __init__(self, limits: QueryLimits) -> None:
        self._pool = _pool(limits.memory_bytes, limits.threads)
        self._open: weakref.WeakSet[EngineSession] = weakref.WeakSet()

    def session(self, ending: Cancellation) -> EngineSession:
        session = self._pool.session(ending)
        self._open.add(session)
        return session

    def close(self) -> None:
        for session in list(self._open):
            session.close()


@functools.cache
def _pool(memory_bytes: int, threads: int) -> WorkerPool:
    made = WorkerPool(memory_bytes, threads, QueryLimits().queries_max, Metrics("query"))
    atexit.register(made.close)
    return made


def pool_of(service: QueryService) -> WorkerPool:
    assert isinstance(service._engine, WorkerPool), "its statements run in workers"
    return service._engine


def worker_pids(service: QueryService, state: str | None = None) -> list[int]:
    """Return the pids of workers. `state` is working or idle; None: all that are ready."""
    by_state = pool_of(service).workers()
    return sorted(pid for name, pids in by_state.items() if state in (None, name) for pid in pids)


def processor_s_by_worker(service: QueryService) -> dict[int, float]:
    """Return the processor time that each worker has spent, by its process id."""
    found = {}
    for pid in worker_pids(service):
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def processor_s_since(service: QueryService, before: Mapping[int, float]) -> float:
    """Return what the workers of now have spent since then."""
    now = processor_s_by_worker(service)
    return sum(spent_s - before.get(pid, 0.0) for pid, spent_s in now.items())


def is_asked(service: QueryService) -> bool:
    """Return True if a statement waits for its worker."""
    pool = pool_of(service)
    with pool._changed:
        return any(worker.busy_since_s is not None for worker in pool._working)


def is_alive(pid: int) -> bool:
    """Return True if any of the process runs; nothing does of one that ended and was not waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


def private_bytes(pid: int | str = "self") -> int:
    """Return the bytes of memory that is the process's own."""
    return memory_of([int(number) for number in Path(f"/proc/{pid}/statm").read_text().split()])[0]


def wait_until(condition: Callable[[], object]) -> None:
    until(condition, timeout_s=WAIT_S)
