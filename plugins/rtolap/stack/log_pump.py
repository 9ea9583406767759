"""Writes what it reads into a log of bounded size: `python log_pump.py LOG BYTES_MAX KEPT`, data on stdin.

When LOG would grow beyond BYTES_MAX it becomes LOG.1, LOG.1 becomes LOG.2, up to LOG.<KEPT>; what is older
goes. So a part's logs never take more than BYTES_MAX times KEPT + 1, whatever the part writes and however
long it runs. It ends when the last process that may write has ended, after everything is written.

Started by path, in isolated mode, with the standard library only: it stays small beside every part.
"""

from __future__ import annotations

import os
import sys

_CHUNK_BYTES = 64 * 1024


class BoundedLog:
    def __init__(self, path: str, bytes_max: int, old_logs_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._old_logs_max = old_logs_max
        self._file: int | None = None

    def write(self, chunk: bytes) -> None:
        """Write a chunk. Raises OSError when the disk refuses it; the next call tries again."""
        file = self._opened()
        if self._bytes and self._bytes + len(chunk) > self._bytes_max:
            self._file = None
            os.close(file)
            self._shift()
            file = self._opened()
        view = memoryview(chunk)
        while view:
            written = os.write(file, view)
            self._bytes += written
            view = view[written:]

    def _shift(self) -> None:
        """Rename the files, from the oldest on: a crash in between loses no newer file for an older one."""
        for number in range(self._old_logs_max - 1, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._bytes = os.fstat(self._file).st_size
        return self._file


def pump(source: int, log: BoundedLog) -> None:
    """Copy lines until the end of `source`. A full disk costs lines, which are counted, never the part behind
    them."""
    lost_bytes = 0
    while chunk := os.read(source, _CHUNK_BYTES):
        try:
            if lost_bytes:
                log.write(f"[{lost_bytes} bytes could not be written here]\n".encode())
                lost_bytes = 0
            log.write(chunk)
        except OSError:
            lost_bytes += len(chunk)


if __name__ == "__main__":
    pump(sys.stdin.fileno(), BoundedLog(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
