"""A disk of its own whose sectors can be lost: reads of what lay there fail, as those of a real one do."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import until

_IMAGE_BYTES = 16 << 20
_BLOCK_BYTES = 1024


class SmallDisk:
    """A mounted file system in a file. What it holds is linked to from elsewhere."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self._folder = image, folder

    def lose(self, file: Path, part: float = 0.0) -> None:
        """Move a file here and lose its sectors, from this part of it on; it can be opened all the same."""
        own = self._folder / file.name
        own.write_bytes(file.read_bytes())
        file.unlink()
        file.symlink_to(own)
        with own.open("rb", buffering=0) as opened:
            descriptor = opened.fileno()
            os.fsync(descriptor)
            os.sync()
            start = _first_block(own) * _BLOCK_BYTES + int(part * own.stat().st_size)
            os.truncate(self._image, start // _BLOCK_BYTES * _BLOCK_BYTES)
            until(lambda: _is_lost(descriptor), f"sectors of {file} are lost")


@contextmanager
def small_disk(place: Path) -> Iterator[SmallDisk]:
    """Mount one below `place`; skipped where the machine does not let this process mount anything."""
    image, folder = place / "disk.image", place / "disk"
    folder.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    made = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-N", "64", "-b", str(_BLOCK_BYTES), str(image)]
    try:
        _run(*made)
        _run("mount", "-o", "loop", str(image), str(folder))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    try:
        yield SmallDisk(image, folder)
    finally:
        _run("umount", "--lazy", str(folder))  # maps of its files may be open


def _is_lost(descriptor: int) -> bool:
    """Read the file, without what is in the cache of it."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    at = 0
    try:
        while read := os.pread(descriptor, _IMAGE_BYTES, at):
            at += len(read)
    except OSError as error:
        return error.errno == errno.EIO
    return False


def _first_block(file: Path) -> int:
    shown = _run("filefrag", "-v", "-b1024", str(file))
    extents = [
        int(start) for start in re.findall(r"^\s+\d+:\s+\d+\.\.\s*\d+:\s+(\d+)\.\.", shown, re.MULTILINE)
    ]
    assert extents, shown
    return min(extents)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
