"""The folder in which workers spill what does not fit their memory, and the disk that has to be left free.

<folder>/worker-<process id>/    of one worker; goes with it
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

PREFIX = "worker-"


class Spills:
    """The folders that workers spill to.

    A statement that leaves less than `free_bytes_min` on the folder's disk is ended: others need that space.
    """

    def __init__(self, folder: Path, free_bytes_min: int) -> None:
        self._folder = folder
        self._free_bytes_min = free_bytes_min

    def clear_left(self) -> None:
        """Make the folder, and remove the files of workers that were killed with their service."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self._folder.glob(f"{PREFIX}*"):
            pid = folder.name.removeprefix(PREFIX)
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)

    def remove(self, pid: int) -> None:
        shutil.rmtree(self._of(pid), ignore_errors=True)

    def missing_bytes(self) -> int:
        """Return the bytes by which the disk has less free than it should; 0 where it has enough."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return 0  # there is no folder: nothing spills
        return max(0, self._free_bytes_min - disk.f_bavail * disk.f_frsize)

    def bytes_of(self, pid: int | None) -> int:
        """Return the bytes on the disk that a worker has spilled."""
        if pid is None:
            return 0
        try:
            with os.scandir(self._of(pid)) as entries:
                return sum(entry.stat().st_blocks * 512 for entry in entries)
        except OSError:
            return 0  # it has not spilled, or its files go at this moment

    def _of(self, pid: int) -> Path:
        return self._folder / f"{PREFIX}{pid}"
