"""The highest memory of a process since a moment, by the operating system (Linux)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import NamedTuple

import psutil
from rtolap.base.pids import Start, start_of


class Watched(NamedTuple):
    """`resident_bytes`: when watching began. `start`: with the pid it names the process."""

    pid: int
    start: Start
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
            status = psutil.Process(self.pid).status()
            return start_of(self.pid) == self.start and status != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def watched(pid: int) -> Watched:
    """Watch a process from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return Watched(pid, start_of(pid), _status(pid, "VmRSS"))


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
