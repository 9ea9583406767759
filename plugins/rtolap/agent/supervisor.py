"""The operations that callers request: ensure, renew, stop, acknowledge; one key at a time.

Everything runs on one event loop. A lock per key orders PUT, DELETE and the regular look at a process,
so that an old generation is gone before the next one starts. Each transition is on disk before it is
acted on; what a crash of the agent leaves behind is found again by `watch`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rtolap.agent import cluster_drivers
from rtolap.agent.commands import Commands, runs_on_cluster
from rtolap.agent.ledger import ProcessLedger
from rtolap.agent.lifecycle import Lifecycle
from rtolap.agent.metrics import AgentMetrics
from rtolap.agent.processes import Processes
from rtolap.agent.records import ProcessRecord, StateFile
from rtolap.agent.states import FINAL, ProcessState
from rtolap.agent.watch import TICK_S, KeyLocks, ProcessLeases, Watch
from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import DefinitionError, NotFound, Refused
from rtolap.protocols.agent.messages import (
    LastGeneration,
    ProcessSpec,
    ProcessStatus,
    check_files,
    check_key,
)

_WITH_PID = (ProcessState.RUNNING, ProcessState.STOPPING)


class Supervisor:
    """Holds the folder until `close`; `run` must be under way for processes to be looked after, every
    `tick_s`. `cpus`: see `Processes`.
    """

    def __init__(
        self,
        folder: Path,
        commands: Commands,
        clock: Clock | None = None,
        *,
        tick_s: float = TICK_S,
        cpus: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        self._folder = AgentFolder(folder)
        self._commands = commands
        self._clock = clock or SystemClock()
        self._processes = Processes(self._folder.logs, cpus)
        self.metrics = AgentMetrics()
        self._ledger = ProcessLedger(
            StateFile(self._folder.state_file), self._processes, self._clock, self.metrics
        )
        self._life = Lifecycle(commands, self._processes, self._ledger, self._clock)
        self._leases = ProcessLeases(self._clock)
        self._locks: KeyLocks = defaultdict(asyncio.Lock)
        self._watch = Watch(self._processes, self._ledger, self._life, self._leases, self._locks, tick_s)

    async def ensure(self, key: str, spec: ProcessSpec) -> ProcessStatus:
        """Have the process run in this generation. The same generation keeps its process, a higher one stops
        the old process fully before it starts, and a lower one is Refused."""
        check_key(key)
        _check_spec(spec)
        check_files(spec.files)
        argv = self._commands.check(spec)
        async with self._locks[key]:
            record, known = self._ledger.find(key), self._ledger.generation(key)
            if record is not None and spec.generation == known:
                self._leases.renew(record)
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
            driver = cluster_drivers.new_name() if runs_on_cluster(spec) else None
            fresh = ProcessRecord(key=key, spec=spec, driver=driver, changed_ms=self._clock.now_ms())
            self._ledger.put(fresh)
            self._leases.renew(fresh)
            return self._status(self._life.start(fresh, argv))

    async def renew(self, key: str, generation: int) -> ProcessStatus:
        record = self._ledger.owned(key, generation, "renew the lease of")
        self._leases.renew(record)
        return self._status(record)

    def get(self, key: str) -> ProcessStatus:
        return self._status(self._ledger.get(key))

    def list(self) -> tuple[ProcessStatus, ...]:
        return tuple(self._status(record) for record in self._ledger.all())

    async def stop(self, key: str, generation: int) -> ProcessStatus:
        """Stop the process, and return once it is gone. A process of an older generation is gone already."""
        async with self._locks[key]:
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
        """Note that the caller has read the result. Only the generation, and the log for people, are
        retained.
        """
        async with self._locks[key]:
            record = self._ledger.owned(key, generation, "acknowledge")
            if record.state not in FINAL:
                raise Refused(
                    f"{key} cannot be acknowledged", expected="an ended process", found=record.state
                )
            self._ledger.forget(record)
            return self._status(record)

    def last(self, key: str) -> LastGeneration:
        return LastGeneration(self._ledger.generation(check_key(key)), self._ledger.labels(key))

    def log(self, key: str, bytes_max: int) -> bytes:
        generation = self._ledger.generation(key)
        if not generation:
            raise NotFound(f"no process {key} on this host")
        return self._processes.log_bytes(key, generation, bytes_max)

    async def run(self) -> None:
        """Adopt the running processes, then supervise them until cancelled."""
        await self._watch.run()

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
        """Release the folder; processes live on."""
        self._watch.close()
        self._folder.close()

    def _status(self, record: ProcessRecord) -> ProcessStatus:
        spec, live = record.spec, record.state not in FINAL
        lease_left_s = round(self._leases.left_s(record), 3) if live else 0.0
        unattended = live and not lease_left_s
        return ProcessStatus(
            key=record.key,
            generation=record.generation,
            state=record.state.value,
            reason=f"{record.reason}; unattended" if unattended else record.reason,
            pid=record.running_as.pid if record.state in _WITH_PID else None,
            started_ms=record.started_ms,
            changed_ms=record.changed_ms,
            restarts=record.restarts,
            exit_code=record.exit_code,
            one_shot=spec.one_shot,
            lease_left_s=lease_left_s,
            argv=spec.argv,
            labels=spec.labels,
            log_tail=record.log_tail,
            steps=record.steps,
        )


def _check_spec(spec: ProcessSpec) -> None:
    positive = {
        "generation": spec.generation,
        "lease_s": spec.lease_s,
        "orphan_s": spec.orphan_s,
        "stop_grace_s": spec.stop_grace_s,
    }
    for name, value in positive.items():
        if value <= 0:
            raise DefinitionError("process refused", expected=f"{name} above 0", found=value)
    if spec.restart.max < 0 or spec.restart.backoff_s < 0:
        raise DefinitionError("process refused", expected="restart values of 0 or more", found=spec.restart)


class AgentFolder:
    """Held from its making until `close`, or until the process ends. Raises Refused when another holds it."""

    def __init__(self, root: Path) -> None:
        self.logs = root / "logs"
        self.state_file = root / "state.json"
        self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_fd = os.open(root / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Refused(
                f"another agent holds {root}",
                expected="one agent per host and folder",
                action="stop the other one, or give this one another RTOLAP_DATA_DIR",
            ) from None

    def close(self) -> None:
        os.close(self._lock_fd)
