"""Files of entries: Arrow streams that are appended to, and removed whole when there are too many or too old.

    <folder>/<milliseconds of its begin>-<process id>-<number>.arrows

A stream has no end as long as it is written, and none where its process was killed: it is read up to the last
whole batch. Several services may have one folder; each writes files of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.query.query_log.entries import SCHEMA

log = logging.getLogger(__name__)

SUFFIX = ".arrows"
FILES = 8  # of which the oldest goes at a time


class LogFolder:
    """The files of entries of one folder. `append` and `expire` are of one thread, `batches` of any.

    Args:
        bytes_max: of all files together; the last batch may pass it.
        keep_ms: files whose last entry is older are removed.
    """

    def __init__(self, folder: Path, clock: Clock, *, bytes_max: int, keep_ms: int) -> None:
        self._folder = folder
        self._clock = clock
        self._bytes_max = bytes_max
        self._keep_ms = keep_ms
        self._file: BinaryIO | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._began_ms = 0
        self._number = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch so that it outlives the process. Raises OSError; the batch is not written then."""
        if self._is_full():
            self.close()
        try:
            if self._writer is None:
                self._open()
            assert self._writer is not None
            assert self._file is not None
            self._writer.write_batch(batch)
            self._file.flush()
        except OSError:
            self._abandon()  # a part of a batch may be there: what follows it would not be read
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is written, the oldest first. A file is left out from where its disk cannot read it."""
        for path in self._paths():
            try:
                with (
                    suppress(FileNotFoundError, pa.ArrowInvalid),  # removed meanwhile, or cut by a kill
                    pa.OSFile(str(path)) as source,
                    pa.ipc.open_stream(source) as reader,
                ):
                    if reader.schema == SCHEMA:  # else of another version
                        yield from reader
            except OSError as error:
                log.warning("the query log in %s is not read: %s", path, error)

    def expire(self) -> None:
        """Remove files that are too old, and the oldest of too many. Raises OSError."""
        sizes = {path: stat for path in self._paths() if (stat := _stat(path)) is not None}
        oldest_s = (self._clock.now_ms() - self._keep_ms) / 1000
        total = sum(stat.st_size for stat in sizes.values())
        own = None if self._file is None else Path(self._file.name)
        for path, stat in sizes.items():
            if path != own and (total > self._bytes_max or stat.st_mtime < oldest_s):
                path.unlink(missing_ok=True)
                total -= stat.st_size

    def close(self) -> None:
        """End the stream that is written. Raises OSError."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._abandon()

    def _is_full(self) -> bool:
        if self._file is None:
            return False
        age_ms = self._clock.now_ms() - self._began_ms
        return self._file.tell() * FILES >= self._bytes_max or age_ms * FILES >= self._keep_ms

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number += 1
        self._began_ms = self._clock.now_ms()
        path = self._folder / f"{self._began_ms:013d}-{os.getpid()}-{self._number}{SUFFIX}"
        self._file = path.open("xb")
        path.chmod(0o600)
        self._writer = pa.ipc.new_stream(self._file, SCHEMA)

    def _abandon(self) -> None:
        self._writer = None
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:  # removed by another service meanwhile
        return None
