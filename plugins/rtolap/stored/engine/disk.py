"""The disk operations of a tablet, one by one: the seam at which tests inject a crash.

Reads bypass it: what is read was made durable before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Protocol

from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.base.files import fsync_dir

RESTORE = "restore the tablet from another replica"  # what helps where bytes are damaged or lost


class OpenFile(Protocol):
    """A new file, written from its beginning to its end."""

    def write(self, data: bytes | memoryview) -> None: ...

    def sync(self) -> None:
        """Make everything written durable. The file's name is not durable before its folder is synced."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A disk, whose calls all raise OSError as the system does (`errno.ENOSPC`: no space left)."""

    def create(self, path: Path) -> OpenFile:
        """Create a file in the place of any other."""

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file that is there, durable on return."""

    def truncate(self, path: Path, length_bytes: int) -> None:
        """Truncate the file, durably."""

    def make_folder(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""

    def remove(self, path: Path) -> None:
        """Remove a file or a whole folder. Harmless when it is gone."""

    def sync_folder(self, path: Path) -> None:
        """Make the names durable that were made, renamed and removed in a folder."""


class _RealFile:
    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def write(self, data: bytes | memoryview) -> None:
        _write_all(self._descriptor, data)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class RealDisk:
    def create(self, path: Path) -> OpenFile:
        return _RealFile(path)

    def append(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, length_bytes: int) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length_bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        fsync_dir(path)


def write_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write a small file as a whole, durable but for its name."""
    file = disk.create(path)
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()


def disk_error(error: OSError, attempted: str) -> RtolapError:
    """Return the error for a caller, which states that nothing visible has changed."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Unavailable(
        f"{attempted}: {'the disk is full' if full else 'the disk failed'}",
        found=error.strerror or str(error),
        action="nothing that is visible has changed; "
        + ("make room, then send it again" if full else "see to the disk, then send it again"),
    )


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(descriptor, view) :]


class FolderLock:
    """The lock of a folder, which one process at a time has: until `release` or the end of the process.

    `refusal` is raised when somebody has it.
    """

    def __init__(self, path: Path, refusal: Refused) -> None:
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise refusal from error

    def release(self) -> None:
        self._file.close()
