"""End what the parts of a stack have started and left: found by the mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection

import psutil

from rtolap.stack.environment import STACK_MARK
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import is_same_process

_POLL_S = 0.05


def marked_processes(layout: StackLayout, spare: Collection[int] = ()) -> list[psutil.Process]:
    """Living processes that descend from the stack's parts, except those of the sessions to spare."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(STACK_MARK) == str(layout.root) and _session(process) not in spare:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            continue  # it ended meanwhile, or is somebody else's
    return found


def sweep(layout: StackLayout, spare: Collection[int], timeout_s: float = 20.0) -> int:
    """SIGTERM, a grace time, SIGKILL; returns how many there were."""
    processes = marked_processes(layout, spare)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        if _all_gone(processes, timeout_s):
            break
    return len(processes)


def _all_gone(processes: list[psutil.Process], timeout_s: float) -> bool:
    """Return True if all ended in time. Zombies count as ended: their parents may never collect them."""
    deadline = time.monotonic() + timeout_s
    while any(is_same_process(process.pid, process.create_time()) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _session(process: psutil.Process) -> int:
    return os.getsid(process.pid)
