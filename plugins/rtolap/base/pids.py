"""A check that a process lives."""

from __future__ import annotations

import psutil


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
