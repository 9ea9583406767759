"""The highest memory of a process since a moment, by the operating system (Linux)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

import psutil


class Watched(NamedTuple):
    """`resident_bytes`: when watching began. `started_s`: epoch; with the pid it names the process."""

    pid: int
    started_s: float
    resident_bytes: int

    def growth_bytes(self) -> int:
        """Return the highest growth since then. Raises AssertionError where the process is gone."""
        return self.peak_bytes() - self.resident_bytes

    def peak_bytes(self) -> int:
        """Return the highest memory since then. Raises AssertionError where the process is gone."""
        assert self.lives(), f"process {self.pid} has ended"
        return _status(self.pid, "VmHWM")

    def lives(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.started_s and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def watched(pid: int) -> Watched:
    """Watch a process from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return Watched(pid, psutil.Process(pid).create_time(), _status(pid, "VmRSS"))


def _status(pid: int, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None, f"{field} of {pid} is not told"
    return int(found[1]) * 1024


def private_bytes_of_children(pid: int) -> int:
    """Return the memory, in bytes, that all its children and theirs do not share with others, now."""
    total = 0
    try:
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                memory = child.memory_info()
                total += memory.rss - memory.shared
    except psutil.NoSuchProcess:
        return 0
    return total
