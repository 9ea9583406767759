"""The ends of logs: regular files alone, never through a link, and never more bytes than allowed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOG_NAME = re.compile(r"\.log(\.\d+)?$")


@dataclass(frozen=True)
class LogTail:
    """The end of a log.

    Attributes:
        name: of the member, below `logs/`.
        text: its last whole lines; None where it could not be read.
        problem: why it could not be read, or what was left out; empty for a whole log.
    """

    name: str
    text: str | None
    problem: str = ""


def log_tails(folders: Sequence[Path], *, each_bytes_max: int, bytes_max: int) -> Iterator[LogTail]:
    """Give the ends of the logs in the folders, the newest first, until `bytes_max` are taken."""
    left = bytes_max
    for folder in folders:
        if folder.is_symlink():
            yield LogTail(folder.name, None, f"{folder} is a link, which is not followed")
            continue
        try:
            found = sorted(_logs(folder), key=lambda each: -each[0])
        except OSError as error:
            yield LogTail(folder.name, None, f"{folder} cannot be read: {error.strerror}")
            continue
        for _, path in found:
            name = f"{folder.name}/{path.name}"
            if left <= 0:
                yield LogTail(name, None, f"the bundle has {bytes_max} bytes of newer logs")
                continue
            try:
                tail = _tail(path, name, min(each_bytes_max, left))
            except OSError as error:
                tail = LogTail(name, None, f"it cannot be read: {error.strerror}")
            left -= len((tail.text or "").encode())
            yield tail


def _logs(folder: Path) -> Iterator[tuple[float, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _LOG_NAME.search(entry.name):
                yield entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)


def _tail(path: Path, name: str, bytes_max: int) -> LogTail:
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            return LogTail(name, None, "it is no regular file")
        skipped = max(status.st_size - bytes_max, 0)
        file.seek(skipped)
        data = file.read(bytes_max)
    if skipped:
        first = data.find(b"\n") + 1  # a line that was cut could hold half a secret, which no mask finds
        data = data[first:] if first else b""
        return LogTail(name, data.decode("utf-8", "replace"), f"its first {status.st_size - len(data)} bytes")
    return LogTail(name, data.decode("utf-8", "replace"))
