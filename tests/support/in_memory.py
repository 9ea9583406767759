"""Folders that lie in memory, where the system has room for them there: to sync a file takes no time."""

from __future__ import annotations

import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")  # in a container it may be of 64 MB
_FREE_BYTES_MIN = 1 << 30

# For `tempfile`; None: where it puts others. A crash in these tests is of a process, not of a disk.
IN_MEMORY = str(_MEMORY) if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _FREE_BYTES_MIN else None
