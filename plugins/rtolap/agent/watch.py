"""The regular look at every process: adopts what a predecessor left, sees ends, stops orphans."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rtolap.agent.ledger import ProcessLedger
from rtolap.agent.lifecycle import Lifecycle
from rtolap.agent.processes import Processes
from rtolap.agent.records import ProcessRecord
from rtolap.agent.states import FINAL, ProcessEvent, ProcessState
from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError

log = logging.getLogger(__name__)

TICK_S = 0.5
RETRY_S = 5.0  # after work in the background that failed
KeyLocks = defaultdict[str, asyncio.Lock]


class ProcessLeases:
    """The leases of processes. The end of one stops nothing: the process is unattended from then on, and an
    orphan when nobody has renewed it for `orphan_s`.

    Kept in memory only: after a restart of the agent they start over.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._renewed_s: dict[str, float] = {}

    def renew(self, record: ProcessRecord) -> None:
        self._renewed_s[record.key] = self._clock.monotonic_s()

    def left_s(self, record: ProcessRecord) -> float:
        """Return the seconds that are left of the lease, 0 once it has expired."""
        return max(0.0, record.spec.lease_s - self._silent_s(record))

    def is_orphan(self, record: ProcessRecord) -> bool:
        return self._silent_s(record) >= max(record.spec.orphan_s, record.spec.lease_s)

    def _silent_s(self, record: ProcessRecord) -> float:
        return self._clock.monotonic_s() - self._renewed_s.get(record.key, self._began_s)


class Watch:
    """The watch over processes. `locks` are shared with the supervisor: a key that a caller works on is left
    alone for this tick."""

    def __init__(
        self,
        processes: Processes,
        ledger: ProcessLedger,
        life: Lifecycle,
        leases: ProcessLeases,
        locks: KeyLocks,
        tick_s: float = TICK_S,
    ) -> None:
        self._processes = processes
        self._ledger = ledger
        self._life = life
        self._leases = leases
        self._locks = locks
        self._tick_s = tick_s
        self._unattended: set[str] = set()  # whose end of the lease is in the log
        self._background: dict[str, asyncio.Task[None]] = {}  # so that a tick starts no second

    async def run(self) -> None:
        """Adopt the running processes, then supervise them until cancelled. What is the matter with one, or
        with the disk, ends no look at the others."""
        self._recover()
        while True:
            for record in self._ledger.all():
                if record.key in self._background or self._locks[record.key].locked():
                    continue
                try:
                    self._inspect(record)
                except (RtolapError, OSError):
                    log.exception("%s cannot be looked after now; it is tried again", record.key)
                    self._keep(record.key, asyncio.sleep(RETRY_S))
            await asyncio.sleep(self._tick_s)

    def close(self) -> None:
        for task in tuple(self._background.values()):
            task.cancel()

    def _recover(self) -> None:
        """Recover from a crash of the predecessor. Its crash points, and what is done about each:

        1. noted PENDING, not started        start it
        2. started, pid not noted            found by its mark and adopted
        3. noted RUNNING                     adopted if that very process lives, else seen as ended
        4. noted STOPPING                    the stop is carried through
        5. a process with a driver on a cluster ended, which is not noted: as 3, the driver is killed first
        6. the same after 2, so that nothing is found: as 1, the driver is killed first
        Leases start over: nobody could renew them while the agent was away.
        """
        for record in self._ledger.all():
            self._leases.renew(record)
            if record.state is ProcessState.BACKOFF:
                self._life.restart_now(record.key)

    def _inspect(self, record: ProcessRecord) -> None:
        key = record.key
        if record.state in FINAL:
            return
        self._note_attendance(record)
        if record.state is ProcessState.STOPPING:
            self._stop(record, record.reason)
        elif self._leases.is_orphan(record):
            self._stop(record, f"orphaned: nobody has renewed its lease for {record.spec.orphan_s:g} s")
        elif record.state is ProcessState.PENDING:
            self._start_pending(record)
        elif record.state is ProcessState.RUNNING:
            if self._processes.alive(record.running_as):
                self._processes.shorten_log(key, record.generation)
            elif record.driver is not None:
                self._beside(record, self._life.ended_on_cluster)
            else:
                self._life.ended(record)
        elif record.state is ProcessState.BACKOFF and self._life.restart_is_due(key):
            pending = self._ledger.step(record, ProcessEvent.RETRY, f"restart {record.restarts}")
            self._life.start_known(pending)

    def _start_pending(self, record: ProcessRecord) -> None:
        """Start a process that was not started, or whose start could not be noted."""
        if self._life.adopted(record) is not None:
            return
        if record.driver is not None:
            self._beside(record, self._life.start_again)
        else:
            self._life.start_known(record)

    def _note_attendance(self, record: ProcessRecord) -> None:
        if self._leases.left_s(record):
            self._unattended.discard(record.key)
        elif record.key not in self._unattended:
            self._unattended.add(record.key)
            log.warning(
                "%s generation %d is unattended: nobody has renewed its lease for %g s; it goes on",
                record.key,
                record.generation,
                record.spec.lease_s,
            )

    def _stop(self, record: ProcessRecord, reason: str) -> None:
        self._beside(record, lambda now: self._life.stop(now, reason))

    def _beside(self, record: ProcessRecord, work: Callable[[ProcessRecord], Awaitable[object]]) -> None:
        """Have the work done in the background: neither a grace time nor a cluster manager must hold up the
        look at the others."""
        self._keep(record.key, self._work(record, work))

    def _keep(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Leave the key to this work until it is done."""
        task = asyncio.create_task(work)
        self._background[key] = task
        task.add_done_callback(lambda _: self._background.pop(key))

    async def _work(self, record: ProcessRecord, work: Callable[[ProcessRecord], Awaitable[object]]) -> None:
        """Do the work, unless a caller was quicker and the record is another by now."""
        try:
            async with self._locks[record.key]:
                if self._ledger.find(record.key) == record:
                    await work(record)
        except (RtolapError, OSError):
            log.exception("%s cannot be ended or started now; it is tried again", record.key)
            await asyncio.sleep(RETRY_S)
