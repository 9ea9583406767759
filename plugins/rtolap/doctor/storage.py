"""The object store: a file is written, read and deleted, as builds and uploads do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from rtolap.base.settings import Settings
from rtolap.doctor.findings import Finding, Look, failed, ok
from rtolap.object_store.store import ObjectStore, open_store

PROBES = "doctor"


def looks(settings: Settings) -> Iterator[Look]:
    """Give the look at the object store."""
    yield Look(
        "object store", lambda: look_at_store(open_store(settings.object_store), settings.object_store)
    )


def look_at_store(store: ObjectStore, uri: str) -> Iterator[Finding]:
    """Write, read and delete a file. Raises what the store raises."""
    path = f"{PROBES}/{uuid.uuid4().hex}"
    written = uuid.uuid4().bytes
    store.write(path, written)
    try:
        read = store.read(path)
    finally:
        store.delete(path)
    if read != written:
        action = "the store must read what was written: no cache that is behind may stand before it"
        yield failed("object store", f"{uri} gave {len(read)} other bytes than were written", action)
    elif store.exists(path):
        yield failed("object store", f"{uri} keeps what was deleted", "give this user the right to delete")
    else:
        yield ok("object store", f"{uri} can be written to, read, and deleted from")
