"""A check that a process lives, and what tells it from a later one with its pid.

A start time in epoch seconds is derived from the wall clock, and moves with it: after a step of the clock, or
in a machine that was restored, the same process seems to have started at another time. The kernel's own count
of clock ticks since boot, with the id of the boot, never changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EXEC_S = 10.0  # a process that has neither arguments nor environment for longer is left to itself
_POLL_S = 0.002
_TICKS = 19  # of the fields behind the name, which is in brackets; `man proc_pid_stat`


class Start(NamedTuple):
    """The start of a process: the boot, and the clock ticks since it. Comparable within a boot."""

    boot: str
    ticks: int


def start_of(pid: int) -> Start:
    """Return the start of a process, which may be a zombie. Raises psutil.NoSuchProcess."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return Start(_BOOT_ID.read_text().strip(), int(stat[stat.rindex(b")") + 1 :].split()[_TICKS]))


def age_s(start: Start) -> float:
    """Return how long ago that was, by the clock that the kernel counts from boot; 0 for another boot."""
    if start.boot != _BOOT_ID.read_text().strip():
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start.ticks / os.sysconf("SC_CLK_TCK")


def same_start(pid: int, start: Start | None, started_s: float, tolerance_s: float) -> bool:
    """Return whether the process of this pid, alive or not yet collected, is the one that started then.

    start: None in a record from before there was one: the start in epoch seconds is compared, which is right
    as long as the clock makes no step. Raises psutil.NoSuchProcess.
    """
    if start is not None:
        return start_of(pid) == start
    return abs(psutil.Process(pid).create_time() - started_s) < tolerance_s


def lives(process: psutil.Process) -> bool:
    """Return whether the process is alive. A zombie is not, unless threads of it are still ending: it holds
    its files and sockets until they have ended.

    The process that inherited a zombie may never collect it, so its pid alone says nothing.
    """
    try:
        return process.is_running() and (
            process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
        )
    except psutil.NoSuchProcess:
        return False


def pid_lives(pid: int) -> bool:
    try:
        return lives(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def environment_of(process: psutil.Process) -> Mapping[str, str]:
    """Return the environment that a process was started with.

    Early in its exec a process has neither arguments nor an environment: they are read again until it has.
    Raises psutil.Error for a process that has ended, or is somebody else's.
    """
    deadline_s = time.monotonic() + _EXEC_S
    while True:
        found = process.environ()
        if found or not _executes(process) or time.monotonic() > deadline_s:
            return found
        time.sleep(_POLL_S)


def _executes(process: psutil.Process) -> bool:
    """Return whether the process has a program, which threads of the kernel lack, and no arguments yet."""
    return lives(process) and bool(process.exe()) and not process.cmdline()
