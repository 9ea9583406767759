"""Folders that lie in memory, where the system has room for them there: to sync a file takes no time.

A crash in these tests is of a process, not of a disk. A process that is killed finds its files as it has
written them, on either.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")  # in a container it may be of 64 MB
_FILES_BYTES_MIN = 1 << 30
_SERVERS_BYTES_MIN = 6 << 30  # of three processes, each with MariaDB, Kafka, HBase and storage nodes


def _folder(free_bytes_min: int) -> str | None:
    """Return the folder in memory, or None where it, or the machine's memory itself, has less room."""
    if not _MEMORY.is_dir():
        return None
    room = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
    return str(_MEMORY) if room > free_bytes_min else None


# For `tempfile`; None: where it puts others.
IN_MEMORY = _folder(_FILES_BYTES_MIN)
SERVERS_IN_MEMORY = _folder(_SERVERS_BYTES_MIN)
