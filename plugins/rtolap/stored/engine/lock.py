"""One process at a time has a tablet open."""

from __future__ import annotations

import fcntl
from pathlib import Path

from rtolap.base.errors import Refused
from rtolap.stored.engine.steps import LOCK


class FolderLock:
    """Held from its making until `release` or the end of the process. Refused when somebody has it."""

    def __init__(self, root: Path) -> None:
        self._file = (root / LOCK).open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise Refused(f"tablet {root} is open already", action="close it there first") from error

    def release(self) -> None:
        self._file.close()
