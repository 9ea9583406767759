"""A small disk: a size-limited tmpfs, which a test fills to the last byte and empties again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = "filler"
_PIECE = bytes(64 * 1024)


class SmallDisk:
    """A small disk. `missing` says why it is none, where this host lets nobody mount; then it is a folder
    like any other."""

    def __init__(self, path: Path, missing: str | None) -> None:
        self.path = path
        self.missing = missing

    def fill(self) -> None:
        assert self.missing is None, "the disk of the host would be filled"
        with (self.path / _FILLER).open("ab", buffering=0) as file:
            while True:
                try:
                    file.write(_PIECE)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        (self.path / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(path)]
    missing = None
    if os.geteuid() != 0:
        missing = "only root may mount a tmpfs"
    else:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            missing = f"no tmpfs can be mounted here: {done.stderr.strip()}"
    try:
        yield SmallDisk(path, missing)
    finally:
        if missing is None:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
