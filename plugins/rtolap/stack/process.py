"""One tracked process: started in its own session, ready when it answers, stopped with all its children.

             start            answers
STOPPED ───────────▶ RUNNING ────────▶ (ready)
   ▲                    │ stop: SIGTERM to the process, SIGKILL to its session after the grace time
   └────────────────────┤
                        │ ended by itself
                        ▼
                     CRASHED ── start ──▶ RUNNING
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec
import psutil

from rtolap.base.errors import ProcessFailed
from rtolap.base.files import write_atomic

_POLL_S = 0.05
_TAIL_BYTES = 64 * 1024
# psutil derives the start time from the boot time, which clock corrections move a little; a pid is not
# given away again that fast.
_SAME_START_S = 2.0


class ProcessState(StrEnum):
    STOPPED = "stopped"
    RUNNING = "running"
    CRASHED = "crashed"


class PidRecord(msgspec.Struct, frozen=True):
    """Contents of a pid file. The pid is also the id of the session that the process leads."""

    pid: int
    started_s: float


@dataclass(frozen=True)
class ProcessSpec:
    """What to run.

    folder     holds `<name>.pid` and `<name>.log`
    address    host:port where it answers, empty when it does not listen
    env        added to this process's environment
    ready      given its start time (epoch seconds): None once it answers, otherwise what is missing, in words
    prepare    run before each start (writes configuration, formats folders); must be repeatable
    """

    name: str
    folder: Path
    argv: tuple[str, ...]
    address: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    ready: Callable[[float], str | None] = lambda started_s: None
    prepare: Callable[[], None] = lambda: None
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0


class ManagedProcess:
    """A spec and the process that runs it, if any; found again by its pid file."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self._child: subprocess.Popen[bytes] | None = None
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
        """Pid of the living process."""
        record = self._record()
        return record.pid if record and self._lives(record) else None

    def state(self) -> ProcessState:
        record = self._record()
        if record is None:
            return ProcessState.STOPPED
        return ProcessState.RUNNING if self._lives(record) else ProcessState.CRASHED

    def missing(self) -> str | None:
        """None while it runs and answers, otherwise what is wrong, in words."""
        record = self._record()
        if record is None or not self._lives(record):
            return str(self.state())
        return self.spec.ready(record.started_s)

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
            self.spec.prepare()
            with open(self.log_path, "ab") as log:
                self._child = subprocess.Popen(
                    self.spec.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self.spec.cwd,
                    env={**os.environ, **self.spec.env},
                )
            record = PidRecord(self._child.pid, psutil.Process(self._child.pid).create_time())
            write_atomic(self.pid_path, msgspec.json.encode(record))
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + self.spec.ready_timeout_s
        while True:
            if self.pid() is None:
                raise ProcessFailed(
                    f"{self.name} ended while it started",
                    found=self.log_tail(),
                    action=f"see {self.log_path}",
                )
            if self._cancelled.wait(_POLL_S):
                raise ProcessFailed(f"waiting for {self.name} was interrupted", action="it runs on")
            missing = self.missing()
            if missing is None:
                return
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
        3. remove the pid file    a crash before leaves it: the next stop finds nothing alive and removes it
        """
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGTERM)
            self._wait_gone(self.spec.stop_timeout_s)
        self._end_session()
        self.pid_path.unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL, as a crash would be; the pid file stays, so that `state()` is CRASHED."""
        self._end_session()

    def log_tail(self, lines: int = 20) -> str:
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def _record(self) -> PidRecord | None:
        try:
            return msgspec.json.decode(self.pid_path.read_bytes(), type=PidRecord)
        except FileNotFoundError:
            return None

    def _lives(self, record: PidRecord) -> bool:
        if self._child is not None and self._child.pid == record.pid and self._child.poll() is not None:
            return False  # poll has reaped it
        return is_same_process(record.pid, record.started_s)

    def _end_session(self) -> None:
        record = self._record()
        if record is None:
            return
        for pid in session_members(record):
            _signal(pid, signal.SIGKILL)
        self._wait_gone(self.spec.stop_timeout_s)

    def _wait_gone(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.pid() is not None and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def is_same_process(pid: int, started_s: float) -> bool:
    """Whether the process that was started then still lives; a zombie does not."""
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started_s) < _SAME_START_S
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


def session_members(record: PidRecord) -> list[int]:
    """Living processes of the session that the recorded process leads or led.

    The kernel gives a pid away again only when neither a process nor a session has it. So if the pid now
    belongs to another process, the old session is gone and nothing is returned.
    """
    if psutil.pid_exists(record.pid) and not is_same_process(record.pid, record.started_s):
        try:
            if psutil.Process(record.pid).status() != psutil.STATUS_ZOMBIE:
                return []
        except psutil.NoSuchProcess:
            pass
    members = []
    for pid in psutil.pids():
        try:
            if (
                os.getsid(pid) == record.pid
                and psutil.Process(pid).create_time() > record.started_s - _SAME_START_S
            ):
                members.append(pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return members


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile, which is what was wanted
