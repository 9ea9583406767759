"""A part's log: its pump, its end, and following it across the pump's renames."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

LOG_BYTES_MAX = 8 << 20
LOGS_KEPT = 3  # before the present one
_PUMP = Path(__file__).with_name("log_pump.py")


def start_pump(
    path: Path, bytes_max: int = LOG_BYTES_MAX, old_logs_max: int = LOGS_KEPT
) -> subprocess.Popen[bytes]:
    """Start the process that copies its stdin to the log. It ends with the last holder of that end.

    Its environment is empty: without the stack's mark nobody ends it before it has written everything.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PUMP), str(path), str(bytes_max), str(old_logs_max)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={},
    )


def last_lines(path: Path, count: int) -> list[str]:
    """Return at most `count` lines, oldest first, without line ends; also of the file before, when this one
    is short."""
    lines: list[str] = []
    for part in (path, path.with_name(path.name + ".1")):
        if len(lines) >= count or not part.exists():
            break
        lines = part.read_text(encoding="utf-8", errors="replace").splitlines()[-count + len(lines) :] + lines
    return lines


class Follower:
    """Lines that are written from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open()
        self._file.seek(0, os.SEEK_END)

    def new_lines(self) -> list[str]:
        """Return the lines since the last call; a renamed log is read to its end first."""
        lines = self._file.readlines()
        if self._renamed():
            lines += self._file.readlines()  # what came between the two
            self._file.close()
            self._file = self._open()
            lines += self._file.readlines()
        return lines

    def close(self) -> None:
        self._file.close()

    def _open(self) -> IO[str]:
        return open(self._path, encoding="utf-8", errors="replace")

    def _renamed(self) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False  # between two renames of the pump
