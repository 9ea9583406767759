"""Starts, stops and restarts one process as the table says; the caller holds its key's lock."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from rtolap.agent import cluster_drivers
from rtolap.agent.commands import Commands
from rtolap.agent.ledger import ProcessLedger
from rtolap.agent.processes import Processes
from rtolap.agent.records import Handle, ProcessRecord
from rtolap.agent.states import FINAL, ProcessEvent, ProcessState
from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, ProcessFailed
from rtolap.base.pids import age_s
from rtolap.base.spans import handed_over
from rtolap.protocols.agent.messages import RESTARTS_VARIABLE

log = logging.getLogger(__name__)

KILL_WAIT_S = 10.0  # after SIGKILL; longer means a process stuck in the kernel


class Lifecycle:
    def __init__(self, commands: Commands, processes: Processes, ledger: ProcessLedger, clock: Clock) -> None:
        self._commands = commands
        self._processes = processes
        self._ledger = ledger
        self._clock = clock
        self._restart_at_s: dict[str, float] = {}
        self._unnoted: dict[tuple[str, int], Handle] = {}  # started, which the disk has not taken yet

    def restart_now(self, key: str) -> None:
        self._restart_at_s[key] = self._clock.monotonic_s()

    def restart_is_due(self, key: str) -> bool:
        return self._clock.monotonic_s() >= self._restart_at_s[key]

    def ended(self, record: ProcessRecord) -> None:
        """Note that a process ended by itself: done, crashed, or not to be started again."""
        self._note_end(record, self._exit_code(record))

    async def ended_on_cluster(self, record: ProcessRecord) -> None:
        """Note that a process ended which waited for a driver on a cluster.

        The driver is over where the process says so by its exit code; otherwise it may live on, and is killed
        before the end is noted. Raises Unavailable: then nothing is noted.
        """
        code = self._exit_code(record)
        if code != 0:
            await self._kill_driver(record)
        self._note_end(record, code)

    def _exit_code(self, record: ProcessRecord) -> int | None:
        # What it left behind would hold ports and files against its successor.
        self._processes.kill_session(record.running_as)
        return self._processes.exit_code(
            record.key, record.generation, record.running_as, keep_exit=record.spec.keeps_exit
        )

    async def _kill_driver(self, record: ProcessRecord) -> None:
        if record.driver is not None:
            argv = self._commands.resolve(record.spec.argv)
            env = {**self._commands.environment(), **record.spec.env}
            await cluster_drivers.kill(argv, record.driver, env)

    def _note_end(self, record: ProcessRecord, code: int | None) -> None:
        spec, key = record.spec, record.key
        reason = f"ended with exit code {code}" if code is not None else "ended; its exit code is unknown"
        record = msgspec.structs.replace(
            record, exit_code=code, log_tail=self._processes.log_tail(key, record.generation)
        )
        if spec.one_shot or code in spec.restart.final_codes:
            self._ledger.step(record, ProcessEvent.COMPLETED if code == 0 else ProcessEvent.GAVE_UP, reason)
            return
        start = record.running_as.start
        stayed_up = start is not None and age_s(start) >= spec.restart.forget_after_s
        restarts = 0 if stayed_up else record.restarts
        if restarts >= spec.restart.max:
            self._ledger.step(record, ProcessEvent.GAVE_UP, f"{reason}, after {restarts} restarts")
            return
        wait_s = min(spec.restart.backoff_s * 2**restarts, spec.restart.backoff_s_max)
        self._restart_at_s[key] = self._clock.monotonic_s() + wait_s
        record = msgspec.structs.replace(record, restarts=restarts + 1)
        self._ledger.step(record, ProcessEvent.CRASHED, f"{reason}; restart in {wait_s:g} s")

    def start_known(self, record: ProcessRecord) -> ProcessRecord:
        """Start a process whose command was checked when it came. One that this agent does not allow, as an
        earlier one did, has failed."""
        try:
            argv = self._commands.resolve(record.spec.argv)
        except DefinitionError as error:
            return self._ledger.step(record, ProcessEvent.GAVE_UP, str(error))
        return self.start(record, argv)

    def start(self, record: ProcessRecord, argv: tuple[str, ...]) -> ProcessRecord:
        """Start the process. The record is on disk as PENDING; see `Watch._recover` for a crash from here
        on."""
        spec = record.spec
        ids = handed_over() if spec.one_shot else {}  # a service works for many requests, a job for this one
        if record.driver is not None:
            argv = cluster_drivers.named(argv, record.driver, ids)
        restarts = {RESTARTS_VARIABLE: str(record.restarts)}
        env = {**self._commands.environment(), **spec.env, **restarts, **ids}
        try:
            handle = self._processes.spawn(
                record.key, record.generation, argv, env, keep_exit=spec.keeps_exit
            )
        except ProcessFailed as error:
            return self._ledger.step(record, ProcessEvent.GAVE_UP, str(error))
        self._unnoted[record.key, record.generation] = handle
        return self.started(record, handle)

    def adopted(self, record: ProcessRecord) -> ProcessRecord | None:
        """Note a start that could not be noted, of this agent or one before it. None: nothing was started, or
        nothing is left of it."""
        handle = self._unnoted.get((record.key, record.generation))
        handle = handle or self._processes.find(record.key, record.generation)
        return None if handle is None else self.started(record, handle)

    def started(self, record: ProcessRecord, handle: Handle) -> ProcessRecord:
        record = msgspec.structs.replace(
            record, handle=handle, started_ms=self._clock.now_ms(), exit_code=None
        )
        where = f", its driver on the cluster as {record.driver}" if record.driver else ""
        noted = self._ledger.step(record, ProcessEvent.SPAWNED, f"running as {handle.pid}{where}")
        self._unnoted.pop((record.key, record.generation), None)
        return noted

    async def start_again(self, record: ProcessRecord) -> None:
        """Start a process of which nobody knows whether it was started. Raises Unavailable.

        What it may have started on a cluster is killed first.
        """
        await self._kill_driver(record)
        self.start_known(record)

    async def stop(self, record: ProcessRecord, reason: str) -> ProcessRecord:
        """Stop the process: send SIGTERM, wait, send SIGKILL to the session, wait; then kill its driver where
        that runs on a cluster. The caller holds the key's lock.

        Raises Unavailable where a driver may be left: the process stays STOPPING.
        """
        if record.state is ProcessState.PENDING:  # it may have been started, which nobody could note
            noted = self.adopted(record)
            if noted is not None:
                record = noted
            else:
                await self._kill_driver(record)
        record = self._ledger.step(
            record, ProcessEvent.STOP, reason if record.state not in FINAL else record.reason
        )
        if record.state is not ProcessState.STOPPING:
            return record
        handle = record.running_as
        self._processes.terminate(handle)
        if not await self._gone(handle, record.spec.stop_grace_s):
            log.warning("%s did not end within %g s: killed", record.key, record.spec.stop_grace_s)
            self._processes.kill_session(handle)
            if not await self._gone(handle, KILL_WAIT_S):
                raise ProcessFailed(
                    f"{record.key} generation {record.generation} does not end",
                    found=f"pid {handle.pid} alive {KILL_WAIT_S:g} s after SIGKILL",
                    action="look at the host: the process is stuck in the kernel",
                )
        await self._kill_driver(record)
        record = msgspec.structs.replace(
            record,
            exit_code=self._processes.exit_code(
                record.key, record.generation, handle, keep_exit=record.spec.keeps_exit
            ),
            log_tail=self._processes.log_tail(record.key, record.generation),
        )
        return self._ledger.step(record, ProcessEvent.GONE, reason)

    async def _gone(self, handle: Handle, wait_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + wait_s
        while self._processes.alive(handle) or self._processes.session_members(handle):
            if self._clock.monotonic_s() >= deadline_s:
                return False
            await asyncio.sleep(0.05)
        return True
