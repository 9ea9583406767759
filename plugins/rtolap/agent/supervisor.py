"""Ensures, stops, restarts: performs what the lifecycle table says, one key at a time.

Everything runs on one event loop. A lock per key orders PUT, DELETE and the regular look at a process,
so that an old generation is gone before the next one starts. Each transition is on disk before it is
acted on; what a crash of the agent leaves behind is found again by `recover`.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Coroutine
from pathlib import Path

import msgspec

from rtolap.agent.commands import Commands
from rtolap.agent.ledger import Ledger
from rtolap.agent.lifecycle import Lifecycle
from rtolap.agent.processes import Processes
from rtolap.agent.records import ProcessRecord, StateFile
from rtolap.agent.states import FINAL, ProcessEvent, ProcessState
from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import DefinitionError, NotFound, Refused, RtolapError
from rtolap.wire.agent import ProcessSpec, ProcessStatus, check_files, check_key

log = logging.getLogger(__name__)

TICK_S = 0.5
_WITH_PID = (ProcessState.RUNNING, ProcessState.STOPPING)


class Supervisor:
    """`folder` holds state.json, logs/ and the lock that keeps a second agent out."""

    def __init__(self, folder: Path, commands: Commands, clock: Clock | None = None) -> None:
        (folder / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_fd = _lock_folder(folder)
        self._commands = commands
        self._clock = clock or SystemClock()
        self._processes = Processes(folder / "logs")
        self._ledger = Ledger(StateFile(folder / "state.json"), self._processes, self._clock)
        self._life = Lifecycle(commands, self._processes, self._ledger, self._clock)
        self._locks: dict[str, asyncio.Lock] = {}
        self._lease_until_s: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()  # keys with a background task, so that a tick does not start another

    # -- what callers ask for ----------------------------------------------------------------------------

    async def ensure(self, key: str, spec: ProcessSpec) -> ProcessStatus:
        """Same generation: the same process. Higher: stop the old one fully, then start. Lower: Refused."""
        check_key(key)
        _check_spec(spec)
        check_files(spec.files)
        argv = self._commands.resolve(spec.argv)
        self._commands.check_env(spec.env)
        async with self._lock(key):
            record, known = self._ledger.find(key), self._ledger.generation(key)
            if record is not None and spec.generation == known:
                self._renew(record)
                return self._status(record)
            if spec.generation <= known:
                raise Refused(
                    f"{key} generation {spec.generation} is not started",
                    expected=f"a generation above {known}",
                    action="a later request owns this process; raise the generation to take it over",
                )
            if record is not None and record.state not in FINAL:
                await self._life.stop(record, f"replaced by generation {spec.generation}")
            if record is not None:
                self._processes.remove_caller_files(key, record.generation)
            self._processes.write_caller_files(key, spec.generation, spec.files)
            spec = msgspec.structs.replace(spec, files={})  # they are on disk: not in the state as well
            fresh = ProcessRecord(key=key, spec=spec, changed_ms=self._clock.now_ms())
            self._ledger.put(fresh)
            self._renew(fresh)
            return self._status(self._life.start(fresh, argv))

    async def renew(self, key: str, generation: int) -> ProcessStatus:
        record = self._ledger.owned(key, generation, "renew the lease of")
        self._renew(record)
        return self._status(record)

    def get(self, key: str) -> ProcessStatus:
        return self._status(self._ledger.get(key))

    def list(self) -> tuple[ProcessStatus, ...]:
        return tuple(self._status(record) for record in self._ledger.all())

    async def stop(self, key: str, generation: int) -> ProcessStatus:
        """Returns once the process is gone. An older generation is gone already."""
        async with self._lock(key):
            record = self._ledger.get(key)
            if generation < record.generation:
                return ProcessStatus(
                    key=key,
                    generation=generation,
                    state=ProcessState.STOPPED.value,
                    reason=f"replaced by generation {record.generation}",
                )
            self._ledger.owned(key, generation, "stop")
            return self._status(await self._life.stop(record, "stopped by request"))

    async def acknowledge(self, key: str, generation: int) -> ProcessStatus:
        """The caller has read the result; only the generation (and the log, for people) is kept."""
        async with self._lock(key):
            record = self._ledger.owned(key, generation, "acknowledge")
            if record.state not in FINAL:
                raise Refused(
                    f"{key} cannot be acknowledged", expected="an ended process", found=record.state
                )
            self._ledger.forget(record)
            return self._status(record)

    def generation(self, key: str) -> int:
        return self._ledger.generation(check_key(key))

    def log(self, key: str, bytes_max: int) -> bytes:
        generation = self._ledger.generation(key)
        if not generation:
            raise NotFound(f"no process {key} on this host")
        return self._processes.log_bytes(key, generation, bytes_max)

    # -- life of the agent -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Adopt what is there, then look after it until cancelled."""
        self._recover()
        while True:
            await asyncio.sleep(TICK_S)
            for record in self._ledger.all():
                if record.key not in self._busy and not self._lock(record.key).locked():
                    self._inspect(record)

    async def stop_all(self) -> None:
        """Stop every process, all at once. Raises the first failure after trying all."""
        results = await asyncio.gather(
            *(self.stop(record.key, record.generation) for record in self._ledger.all()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def close(self) -> None:
        """Let go of the folder; processes live on."""
        for task in tuple(self._tasks):
            task.cancel()
        os.close(self._lock_fd)

    def _recover(self) -> None:
        """Crash points of the predecessor and what is done about each:

        1. noted PENDING, not started        start it
        2. started, pid not noted            found by its mark and adopted
        3. noted RUNNING                     adopted if that very process lives, else seen as ended
        4. noted STOPPING                    the stop is carried through
        Leases begin anew: nobody could renew them while the agent was away.
        """
        for record in self._ledger.all():
            self._renew(record)
            if record.state is ProcessState.PENDING:
                found = self._processes.find(record.key, record.generation)
                if found is None:
                    self._life.start(record, self._commands.resolve(record.spec.argv))
                else:
                    self._life.started(record, found)
            elif record.state is ProcessState.BACKOFF:
                self._life.restart_now(record.key)

    # -- the regular look at one process -----------------------------------------------------------------

    def _inspect(self, record: ProcessRecord) -> None:
        key = record.key
        if record.state in FINAL:
            return
        if record.state is ProcessState.STOPPING:
            self._background(key, record.reason)
        elif self._clock.monotonic_s() >= self._lease_until_s[key]:
            self._background(key, f"lease of {record.spec.lease_s:g} s expired: nobody asked after it")
        elif record.state is ProcessState.RUNNING:
            if self._processes.alive(record.running_as):
                self._processes.shorten_log(key, record.generation)
            else:
                self._life.ended(record)
        elif record.state is ProcessState.BACKOFF and self._life.restart_is_due(key):
            pending = self._ledger.step(record, ProcessEvent.RETRY, f"restart {record.restarts}")
            self._life.start(pending, self._commands.resolve(pending.spec.argv))

    # -- leases and background stops --------------------------------------------------------------------

    def _background(self, key: str, reason: str) -> None:
        async def stop_it() -> None:
            try:
                async with self._lock(key):
                    await self._life.stop(self._ledger.get(key), reason)
            except RtolapError:
                log.exception("stopping %s in the background failed; it is tried again", key)
            finally:
                self._busy.discard(key)

        self._busy.add(key)
        self._track(stop_it())

    def _track(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _renew(self, record: ProcessRecord) -> None:
        self._lease_until_s[record.key] = self._clock.monotonic_s() + record.spec.lease_s

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _status(self, record: ProcessRecord) -> ProcessStatus:
        spec, live = record.spec, record.state not in FINAL
        left_s = self._lease_until_s.get(record.key, 0.0) - self._clock.monotonic_s()
        return ProcessStatus(
            key=record.key,
            generation=record.generation,
            state=record.state.value,
            reason=record.reason,
            pid=record.running_as.pid if record.state in _WITH_PID else None,
            started_ms=record.started_ms,
            changed_ms=record.changed_ms,
            restarts=record.restarts,
            exit_code=record.exit_code,
            one_shot=spec.one_shot,
            lease_left_s=round(max(0.0, left_s), 3) if live else 0.0,
            argv=spec.argv,
            labels=spec.labels,
            log_tail=record.log_tail,
        )


def _check_spec(spec: ProcessSpec) -> None:
    positive = {"generation": spec.generation, "lease_s": spec.lease_s, "stop_grace_s": spec.stop_grace_s}
    for name, value in positive.items():
        if value <= 0:
            raise DefinitionError("process refused", expected=f"{name} above 0", found=value)
    if spec.restart.max < 0 or spec.restart.backoff_s < 0:
        raise DefinitionError("process refused", expected="restart values of 0 or more", found=spec.restart)


def _lock_folder(folder: Path) -> int:
    descriptor = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Refused(
            f"another agent holds {folder}",
            expected="one agent per host and folder",
            action="stop the other one, or give this one another RTOLAP_DATA_DIR",
        ) from None
    return descriptor
