"""A tracked process: started in its own session, ready when it answers, stopped with all its children.

             start            answers
STOPPED ───────────▶ RUNNING ────────▶ (ready)
   ▲                    │ stop: SIGTERM to the process, SIGKILL to its session after the grace time
   └────────────────────┤
                        │ ended by itself
                        ▼
                     CRASHED ── start ──▶ RUNNING
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from rtolap.base.errors import ProcessFailed
from rtolap.base.files import PRIVATE, write_atomic
from rtolap.stack.inherited import inherited
from rtolap.stack.log_files import last_lines, start_pump
from rtolap.stack.pids import (
    PidRecord,
    ProcessId,
    identify,
    is_same_process,
    read_record,
    send_signal,
    session_members,
)
from rtolap.stack.ports import foreign_listener, require_free
from rtolap.stack.spec import ProcessSpec

_POLL_S = 0.05
_READY_POLL_S_MAX = 0.5  # asking costs the cores that the parts need to start: the longer it takes, the rarer
_READY_POLL_GROWTH = 1.2
_DRAIN_TIMEOUT_S = 2.0


class ProcessState(StrEnum):
    STOPPED = "stopped"
    RUNNING = "running"
    CRASHED = "crashed"


class ManagedProcess:
    """A spec and the process that runs it, if any; found again by its pid file."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self._child: subprocess.Popen[bytes] | None = None
        self._pump: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def address(self) -> str:
        return self.spec.address

    @property
    def log_path(self) -> Path:
        return self.spec.folder / f"{self.name}.log"

    @property
    def pid_path(self) -> Path:
        return self.spec.folder / f"{self.name}.pid"

    def pid(self) -> int | None:
        """Return the pid of the living process."""
        record = self._record()
        return record.pid if record and self._lives(record) else None

    def state(self) -> ProcessState:
        record = self._record()
        if record is None:
            return ProcessState.STOPPED
        return ProcessState.RUNNING if self._lives(record) else ProcessState.CRASHED

    def missing(self) -> str | None:
        """Return None while it runs and answers, otherwise what is wrong, in words."""
        record = self._record()
        if record is None or not self._lives(record):
            return str(self.state())
        missing = self.spec.ready(record.started_s)
        if missing is not None or not self.spec.ports:
            return missing
        return foreign_listener(self.spec.ports, record)

    def log_is_written(self) -> bool:
        """Return False when the pump ended before the process did: what it writes is lost."""
        record = self._record()
        return record is None or record.pump is None or _alive(self._pump, record.pump)

    def started_s(self) -> float | None:
        """Start time of the living process, epoch seconds."""
        record = self._record()
        return record.started_s if record and self._lives(record) else None

    def start(self, *, wait: bool = True) -> None:
        """Start it unless it runs already; with `wait`, return when it answers.

        Raises ProcessFailed, with the end of its log, when it ends or does not answer in time.
        """
        if self.pid() is None:
            self.spec.folder.mkdir(parents=True, exist_ok=True)
            self._end_session()  # children that a crashed predecessor may have left
            require_free(self.spec.ports, self.name)
            self.spec.prepare()
            self._spawn()
        if wait:
            self.wait_ready()

    def _spawn(self) -> None:
        """Start the process, its output into the pump. Both are noted in the pid file.

        A crash before that leaves a process that carries the stack's mark: `down` finds it.
        """
        self._pump = start_pump(self.log_path)
        assert self._pump.stdin is not None
        with self._pump.stdin as output:
            try:
                self._child = subprocess.Popen(
                    self.spec.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self.spec.cwd,
                    env={**inherited(), **self.spec.env},
                    umask=PRIVATE,
                )
            except OSError as error:
                raise ProcessFailed(f"{self.name} cannot be started", found=str(error)) from error
        child = identify(self._child.pid)
        record = PidRecord(child.pid, child.started_s, identify(self._pump.pid), child.start)
        write_atomic(self.pid_path, msgspec.json.encode(record))

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self.spec.ready_timeout_s
        poll_s = _POLL_S
        while True:
            if self.pid() is None:
                self._drain()
                raise ProcessFailed(
                    f"{self.name} ended while it started",
                    found=self.log_tail(),
                    action=f"see {self.log_path}",
                )
            if self._cancelled.wait(poll_s):
                raise ProcessFailed(f"waiting for {self.name} was interrupted", action="it runs on")
            missing = self.missing()
            if missing is None:
                return
            poll_s = min(poll_s * _READY_POLL_GROWTH, _READY_POLL_S_MAX)
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{self.name} was not ready within {self.spec.ready_timeout_s:.0f} s",
                    found=f"{missing}\n{self.log_tail()}",
                    action=f"see {self.log_path}",
                )

    def cancel(self) -> None:
        """Make a `wait_ready` of another thread return at once, with an error."""
        self._cancelled.set()

    def stop(self) -> None:
        """End the process and whatever is left of its session; harmless when nothing runs.

        1. SIGTERM to the process and a grace time
        2. SIGKILL to every process of its session
        3. its log is written to the end
        4. remove the pid file    a crash before leaves it: the next stop finds nothing alive and removes it
        """
        pid = self.pid()
        if pid is not None:
            send_signal(pid, signal.SIGTERM)
            self._wait_gone(self.spec.stop_timeout_s)
        self._end_session()
        self._drain()
        self.pid_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """Send SIGKILL, as a crash would be. The pid file stays, so that `state()` is CRASHED."""
        self._end_session()

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(last_lines(self.log_path, lines)) or "(no log)"

    def _record(self) -> PidRecord | None:
        return read_record(self.pid_path)

    def _lives(self, record: PidRecord) -> bool:
        return _alive(self._child, record)

    def _end_session(self) -> None:
        record = self._record()
        if record is None:
            return
        for pid in session_members(record):
            send_signal(pid, signal.SIGKILL)
        self._wait_gone(self.spec.stop_timeout_s)

    def _wait_gone(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.pid() is not None and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _drain(self) -> None:
        """Let the pump write what is left. It stays while a process outside the session may still write."""
        record = self._record()
        pump = record.pump if record else None
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while pump is not None and _alive(self._pump, pump) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _alive(child: subprocess.Popen[bytes] | None, noted: PidRecord | ProcessId) -> bool:
    """Return whether it lives. `child` is the same process when it is our own: polling reaps it."""
    if child is not None and child.pid == noted.pid and child.poll() is not None:
        return False
    return is_same_process(noted)
