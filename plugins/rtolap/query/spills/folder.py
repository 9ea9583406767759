"""The folder to which statements spill what does not fit their memory, and the disk that has to be left free.

<folder>/worker-<process id>/    of one worker; goes with it
<folder>/service-<process id>/   of one query service, whose files have no names
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from rtolap.base.errors import OverBudget, TooLittleDisk, Unavailable
from rtolap.model.quantities import size_text

WORKER, SERVICE = "worker-", "service-"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SETTING = "RTOLAP_QUERY_SPILL_FOLDER"


class Spills:
    """The folders that a service and its workers spill to. Thread-safe.

    A statement that leaves less than `free_bytes_min` on the folder's disk is ended: others need that space.
    """

    def __init__(self, folder: Path, free_bytes_min: int) -> None:
        self._folder = folder
        self._free_bytes_min = free_bytes_min
        self._lock = threading.Lock()

    def clear_left(self) -> None:
        """Make the folder, and remove what workers and services that were killed have left in it."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (*self._folder.glob(f"{WORKER}*"), *self._folder.glob(f"{SERVICE}*")):
            pid = folder.name.partition("-")[2]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)

    def remove(self, pid: int) -> None:
        """Remove the files of a worker."""
        shutil.rmtree(self._of(pid), ignore_errors=True)

    def remove_own(self) -> None:
        """Remove the folder of this service, which is empty: it is made again where it is needed."""
        shutil.rmtree(self._own(), ignore_errors=True)

    def missing_bytes(self) -> int:
        """Return the bytes by which the disk has less free than it should; 0 where it has enough."""
        free_bytes = self._free_bytes()
        return 0 if free_bytes is None else max(0, self._free_bytes_min - free_bytes)

    def bytes_of(self, pid: int | None) -> int:
        """Return the bytes on the disk that a worker has spilled."""
        if pid is None:
            return 0
        try:
            with os.scandir(self._of(pid)) as entries:
                return sum(entry.stat().st_blocks * 512 for entry in entries)
        except OSError:
            return 0  # it has not spilled, or its files go at this moment

    def new_file(self) -> int:
        """Return the descriptor of a new file without a name. Its bytes go with its last descriptor or map.

        Raises OverBudget where the folder takes no file, and TooLittleDisk.
        """
        own = self._own()
        try:
            with self._lock:
                own.mkdir(mode=0o700, parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=own, buffering=0) as file:
                    return os.dup(file.fileno())
        except OSError as error:
            if error.errno in _FULL:
                raise self.failed(error) from error
            raise OverBudget(
                "the partial rows of history do not fit into memory, and the spill folder takes no file",
                expected=f"a folder that the query service may write, {_SETTING}",
                found=str(error),
                action=f"set {_SETTING}, SET rtolap_engine = spark, or group by fewer columns",
            ) from error

    def check_free(self, bytes_more: int) -> None:
        """Raise TooLittleDisk if so many bytes more would take what has to stay free."""
        free_bytes = self._free_bytes()
        if free_bytes is not None and free_bytes - bytes_more < self._free_bytes_min:
            raise TooLittleDisk(
                "the read of history needs more of the disk than it may have",
                expected=f"{size_text(self._free_bytes_min)} that stay free in {_SETTING}",
                found=f"{size_text(free_bytes)} free, and {size_text(bytes_more)} to write",
                action="free some of the disk, group by fewer columns, or SET rtolap_engine = spark",
            )

    def failed(self, error: OSError) -> Unavailable:
        """Return the error of writing to a file."""
        if error.errno not in _FULL:
            return Unavailable(
                "the disk to which statements spill cannot be written",
                expected=f"a disk that takes files, {_SETTING}, {self._folder}",
                found=str(error),
                action=f"look at the disk, or set {_SETTING}",
            )
        return TooLittleDisk(
            "the disk to which statements spill is full",
            expected=f"room in {_SETTING}, {self._folder}",
            found=str(error),
            action="free some of the disk, group by fewer columns, or SET rtolap_engine = spark",
        )

    def _free_bytes(self) -> int | None:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return None  # there is no folder: nothing spills
        return disk.f_bavail * disk.f_frsize

    def _of(self, pid: int) -> Path:
        return self._folder / f"{WORKER}{pid}"

    def _own(self) -> Path:
        return self._folder / f"{SERVICE}{os.getpid()}"
