"""The life of a history file as the cache sees it, and the conditions that the cache itself is in.

                COPY               COPIED
    REMOTE ───────────▶ COPYING ───────────▶ CACHED
      ▲  │                 │ FAILED            │ EVICT
      │  └───── ADOPT ─────┼──────▶ CACHED     │
      │                    ▼                   │
      └── REMOVED ────── LEAVING ◀─────────────┘

Only a CACHED copy is given to statements. One that is LEAVING is still on the disk, in part or whole, because
statements that began before read it or because its removal has yet to succeed; its bytes count.
"""

from __future__ import annotations

from enum import StrEnum


class FileState(StrEnum):
    REMOTE = "REMOTE"
    COPYING = "COPYING"
    CACHED = "CACHED"
    LEAVING = "LEAVING"


class FileEvent(StrEnum):
    ADOPT = "ADOPT"
    COPY = "COPY"
    COPIED = "COPIED"
    FAILED = "FAILED"
    EVICT = "EVICT"
    REMOVED = "REMOVED"


FILE_TRANSITIONS: dict[tuple[FileState, FileEvent], FileState] = {
    (FileState.REMOTE, FileEvent.ADOPT): FileState.CACHED,
    (FileState.REMOTE, FileEvent.COPY): FileState.COPYING,
    (FileState.COPYING, FileEvent.COPIED): FileState.CACHED,
    (FileState.COPYING, FileEvent.FAILED): FileState.LEAVING,
    (FileState.CACHED, FileEvent.EVICT): FileState.LEAVING,
    (FileState.LEAVING, FileEvent.EVICT): FileState.LEAVING,
    (FileState.LEAVING, FileEvent.REMOVED): FileState.REMOTE,
}


class Condition(StrEnum):
    """The keeper's work, or what keeps it from placing; statements go on in every one of them."""

    STARTING = "STARTING"  # the folder is looked through
    TAKEN = "TAKEN"  # another process has the folder
    COPYING = "COPYING"
    PLACED = "PLACED"  # nothing is missing
    DISK_FULL = "DISK_FULL"
    DISK_FAILED = "DISK_FAILED"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    CLUSTER_UNAVAILABLE = "CLUSTER_UNAVAILABLE"
    WAITING = "WAITING"  # statements still read what has to make room
    CLOSED = "CLOSED"


class Eviction(StrEnum):
    """The reason why a copy goes."""

    AGE = "age"  # newer files need its room
    REPLACED = "replaced"  # its version is no longer READY: superseded, purged, or of a dropped cube
    DAMAGED = "damaged"


class CopyFailure(StrEnum):
    """The reason why a copy did not come about."""

    DISK_FULL = "disk_full"
    DISK_FAILED = "disk_failed"
    STORE_UNAVAILABLE = "store_unavailable"
    MISSING = "missing"  # the store has no such file
    DAMAGED = "damaged"  # what the store gave is not what the manifest says
    REFUSED = "refused"  # a name that is no path
