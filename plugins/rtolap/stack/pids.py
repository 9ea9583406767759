"""Processes by pid and start time: a pid alone is given away again, the pair is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import psutil

from rtolap.base.decoding import decode_json
from rtolap.base.pids import lives, pid_lives

# psutil derives the start time from the boot time, which clock corrections move a little; a pid is not
# given away again that fast.
_SAME_START_S = 2.0


class ProcessId(msgspec.Struct, frozen=True):
    """A process, known by pid and start. `started_s` is in epoch seconds."""

    pid: int
    started_s: float


class PidRecord(msgspec.Struct, frozen=True):
    """Contents of a pid file. The pid is also the id of the session that the process leads.

    `pump`: the process that writes its log.
    """

    pid: int
    started_s: float
    pump: ProcessId | None = None


def identify(pid: int) -> ProcessId:
    """Return the id of a child that has not been waited for, so that its pid cannot be another's yet."""
    return ProcessId(pid, psutil.Process(pid).create_time())


def read_record(path: Path) -> PidRecord | None:
    try:
        return decode_json(path.read_bytes(), PidRecord)
    except FileNotFoundError:
        return None


def is_same_process(pid: int, started_s: float) -> bool:
    """Return True if the process that was started then still lives; a zombie does not."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started_s) < _SAME_START_S and lives(process)
    except psutil.NoSuchProcess:
        return False


def session_members(record: PidRecord) -> list[int]:
    """Return the living processes of the session that the recorded process leads or led.

    The kernel gives a pid away again only when neither a process nor a session has it. So if the pid now
    belongs to another process, the old session is gone and nothing is returned.
    """
    if pid_lives(record.pid) and not is_same_process(record.pid, record.started_s):
        return []
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


def send_signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile, which is what was wanted
