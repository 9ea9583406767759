"""Bodies that are read from their end: held in memory while that suffices, else in a file without a name.

A file costs a copy into the system's memory and one out of it again, also where no byte of it ever reaches a
disk. All bodies of a process share the memory; a body that finds none left goes into a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import IO

import pyarrow as pa

from rtolap.base.errors import TooLarge, Unavailable
from rtolap.stored.bodies.settings import BodySettings

_SHARED_BYTES_MAX = 256 << 20  # of all bodies together that are in memory


class SpoolMemory:
    """The memory that bodies of a process share. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self.used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Take memory, if there is so much; `give_back` returns it."""
        with self._lock:
            if self.used_bytes + size_bytes > self._bytes_max:
                return False
            self.used_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self.used_bytes -= size_bytes


_MEMORY = SpoolMemory(_SHARED_BYTES_MAX)


@contextmanager
def held(
    chunks: Iterator[bytes], settings: BodySettings, memory: SpoolMemory = _MEMORY
) -> Iterator[tuple[pa.NativeFile, int]]:
    """Receive a body; yield a file to read it from any place, and its size in bytes.

    TooLarge: it is larger than a spool may be. Unavailable: the disk takes nothing.
    """
    pieces: list[bytes] = []
    size = taken = 0
    try:
        for chunk in chunks:
            pieces.append(chunk)
            size += len(chunk)
            # while its pieces are put together, a body is there twice
            if size > settings.spool_memory_bytes_max or not memory.take(2 * len(chunk)):
                break
            taken += 2 * len(chunk)
        else:
            whole = b"".join(pieces)
            pieces.clear()
            _check_size(size, settings.spool_bytes_max)
            yield pa.BufferReader(whole), size
            return
        with tempfile.TemporaryFile(prefix="rtolap-load-") as spool:
            size = write_spool(_drained(pieces), spool, settings.spool_bytes_max)
            memory.give_back(taken)
            taken = 0
            spool.seek(size)
            size = write_spool(chunks, spool, settings.spool_bytes_max, size)
            yield pa.PythonFile(spool, mode="r"), size
    finally:
        memory.give_back(taken)


def _drained(pieces: list[bytes]) -> Iterator[bytes]:
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def write_spool(chunks: Iterator[bytes], spool: IO[bytes], bytes_max: int, size: int = 0) -> int:
    """Write chunks behind the first `size` bytes; return how many there are then. The file is at its begin
    afterwards. Raises TooLarge, and Unavailable when the disk takes nothing."""
    for chunk in chunks:
        size += len(chunk)
        _check_size(size, bytes_max)
        try:
            spool.write(chunk)
            spool.flush()
        except OSError as error:
            raise Unavailable(
                "a body cannot be spooled", found=error.strerror, action="free disk space"
            ) from error
    spool.seek(0)
    return size


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise TooLarge("a body is too large for its format", expected=f"at most {bytes_max} bytes")
