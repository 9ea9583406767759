"""Processes by pid and start time: a pid alone is given away again, the pair is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import psutil

from rtolap.base.decoding import decode_json
from rtolap.base.pids import Start, pid_lives, same_start, start_of

# Of records without a `Start`: clock corrections move a start in epoch seconds a little; a pid is not given
# away again that fast.
_SAME_START_S = 2.0


class ProcessId(msgspec.Struct, frozen=True):
    """A process, known by pid and start. `started_s`, in epoch seconds, is what people are told."""

    pid: int
    started_s: float
    start: Start | None = None


class PidRecord(msgspec.Struct, frozen=True):
    """Contents of a pid file. The pid is also the id of the session that the process leads.

    `pump`: the process that writes its log.
    """

    pid: int
    started_s: float
    pump: ProcessId | None = None
    start: Start | None = None


def identify(pid: int) -> ProcessId:
    """Return the id of a child that has not been waited for, so that its pid cannot be another's yet."""
    return ProcessId(pid, psutil.Process(pid).create_time(), start_of(pid))


def read_record(path: Path) -> PidRecord | None:
    try:
        return decode_json(path.read_bytes(), PidRecord)
    except FileNotFoundError:
        return None


def is_same_process(noted: ProcessId | PidRecord) -> bool:
    """Return True if the process that was noted still lives; a zombie does not."""
    try:
        return same_start(noted.pid, noted.start, noted.started_s, _SAME_START_S) and pid_lives(noted.pid)
    except psutil.NoSuchProcess:
        return False


def session_members(record: PidRecord) -> list[int]:
    """Return the living processes of the session that the recorded process leads or led.

    The kernel gives a pid away again only when neither a process nor a session has it. So if the pid now
    belongs to another process, the old session is gone and nothing is returned.
    """
    if pid_lives(record.pid) and not is_same_process(record):
        return []
    members = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == record.pid and _is_later(pid, record):
                members.append(pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return members


def _is_later(pid: int, record: PidRecord) -> bool:
    if record.start is not None:
        return start_of(pid) >= record.start and start_of(pid).boot == record.start.boot
    return psutil.Process(pid).create_time() > record.started_s - _SAME_START_S


def send_signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile, which is what was wanted
