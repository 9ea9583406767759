"""Stores refused records, with their source and the reason, before their batch counts as loaded.

A batch that is sent again keeps them again: the key `topic/partition/offset` makes the copies one.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import NotFound
from rtolap.base.files import fsync_dir
from rtolap.base.undecodable import UNDECODABLE
from rtolap.events.rejects import SOURCE_PREFIX, Rejects, SentBatch, dead_letter_records
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.kafka.interfaces import Batch, OutRecord, StreamProducer

_FLUSH_S = 30.0
_NUMBER = re.compile(r"-?\d{1,19}")


class RejectBox(Protocol):
    """A box that keeps rejected records. It is thread-safe. `keep` returns once they are durable, and raises
    RtolapError when they cannot be."""

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None: ...

    def close(self) -> None: ...


def reject_topic(topic: str, loader: str) -> str:
    return f"{topic}.{loader}.rejects"


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
    """Stores refused records in a file of JSON lines. Values, and what was read of keys and headers, are in
    Base64, as they may be anything.

    The file is append-only. Several processes of a loader on one host append to it: each holds a lock of the
    file meanwhile, and begins a new line where one that died has left half of its own.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()  # flock is held by the open file, so by all threads of a process at once
        self._file = path.open("ab+", buffering=0)
        fsync_dir(path.parent)

    def keep(self, topic: str, batch: Batch, rejects: Rejects, sent: SentBatch | None = None) -> None:
        lines = [_line(record) for record in dead_letter_records(topic, batch, rejects, sent)]
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


def letters_in_file(path: Path, newest: int | None = None) -> Iterator[KeptLetter]:
    """Yield the letters that a file holds now, whole; none where there is no file. `newest`: only the last so
    many; None for all.

    Half a line is what a process has left that died, or of one that writes just now: its batch is not loaded.
    """
    try:
        with path.open("rb") as file:
            lines = (letter for line in file if (letter := _letter(line)) is not None)
            yield from lines if newest is None else deque(lines, maxlen=newest)
    except FileNotFoundError:  # nothing was refused on this host
        return


def _line(record: OutRecord) -> bytes:
    """Return a letter as a line. What `SOURCE_PREFIX` begins stands in `sources`, by its name."""
    headers: dict[str, object] = {}
    sources: dict[str, bytes | None] = {}
    for name, value in record.headers.items():
        if name.startswith(SOURCE_PREFIX):
            sources[name.removeprefix(SOURCE_PREFIX)] = value[1:] if value else None
        else:
            headers[name] = value.decode("utf-8", "replace")
    return msgspec.json.encode({**headers, "sources": sources, "value": record.value})


class _Line(msgspec.Struct):
    partition: str
    offset: str
    value: bytes | None
    sources: dict[str, bytes | None] = {}


def _letter(line: bytes) -> KeptLetter | None:
    try:
        found = decode_json(line, _Line)
        texts = decode_json(line, dict[str, Any])
    except UNDECODABLE:
        return None
    if not (_NUMBER.fullmatch(found.partition) and _NUMBER.fullmatch(found.offset)):
        return None
    headers = {name: text.encode() for name, text in texts.items() if isinstance(text, str)}
    headers.pop("value", None)
    for source, text in found.sources.items():
        headers[f"{SOURCE_PREFIX}{source}"] = b"" if text is None else b"=" + text
    return KeptLetter(int(found.partition), int(found.offset), found.value, headers)
