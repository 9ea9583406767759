"""Stores refused records, with their source and the reason, before their batch counts as loaded.

A batch that is sent again keeps them again: the key `topic/partition/offset` makes the copies one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from rtolap.base.errors import NotFound
from rtolap.base.files import fsync_dir
from rtolap.events.rejects import Rejects, SentBatch, dead_letter_records
from rtolap.kafka.interfaces import Batch, OutRecord, StreamProducer
from rtolap.model.loader import Loader

_FLUSH_S = 30.0


class RejectBox(Protocol):
    """A box that keeps rejected records. It is thread-safe. `keep` returns once they are durable, and raises
    RtolapError when they cannot be."""

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None: ...

    def close(self) -> None: ...


def reject_topic(topic: str, loader: str) -> str:
    return f"{topic}.{loader}.rejects"


def letters_job(loader: Loader) -> str | None:
    """Return the job whose dead letters are kept in the ledger; None where a file has them."""
    return loader.name if loader.rejects.to == "topic" else None


class TopicBox:
    """Stores refused records in a topic of their own, which is created for the first one."""

    def __init__(self, producer: StreamProducer, topic: str, create_topic: Callable[[], object]) -> None:
        self._producer = producer
        self._topic = topic
        self._create_topic = create_topic
        self._lock = Lock()

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        records = dead_letter_records(topic, batch, rejects, sent)
        with self._lock:
            try:
                self._send(records)
            except NotFound:
                self._create_topic()
                self._send(records)

    def _send(self, records: list[OutRecord]) -> None:
        self._producer.produce(self._topic, records)
        self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        self._producer.close()


class FileBox:
    """Stores refused records in a file of JSON lines. Values are in Base64, as they may be anything.

    The file is append-only. Several processes of a loader on one host append to it: each holds a lock of the
    file meanwhile, and begins a new line where one that died has left half of its own.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()  # flock is held by the open file, so by all threads of a process at once
        self._file = path.open("ab+", buffering=0)
        fsync_dir(path.parent)

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        lines = []
        for record in dead_letter_records(topic, batch, rejects):
            headers = {name: value.decode("utf-8", "replace") for name, value in record.headers.items()}
            lines.append(msgspec.json.encode({**headers, "value": record.value}))
        with self._lock:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._append(b"\n".join(lines) + b"\n")
                os.fsync(self._file.fileno())
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _append(self, text: bytes) -> None:
        size_bytes = self._file.seek(0, os.SEEK_END)
        if size_bytes and os.pread(self._file.fileno(), 1, size_bytes - 1) != b"\n":
            text = b"\n" + text
        left = memoryview(text)
        while left:
            left = left[self._file.write(left) :]

    def close(self) -> None:
        self._file.close()
