"""Bodies that are read from their end: held in memory while that suffices, else in a file without a name.

A file costs a copy into the system's memory and one out of it again, also where no byte of it ever reaches a
disk. All bodies of a process share the memory; a body that finds none left goes into a file.

The memory of a body is used again for the next one: a page from the system has to be cleared, which takes
longer than the copy into it. Meanwhile the system may take the pages back whenever it needs them.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import IO

import numpy as np
import pyarrow as pa

from rtolap.base.errors import TooLarge, Unavailable
from rtolap.stored.bodies.settings import BodySettings

_FIRST_BYTES = 1 << 20
_HUGE_FROM_BYTES = 8 << 20  # pages of 2 MiB would be too large for small bodies
_PIECE_BYTES = 1 << 20
_SHARED_BYTES_MAX = 256 << 20  # of all bodies together that are in memory
_IDLE_BYTES_MAX = 64 << 20  # that wait for the next body


class SpoolMemory:
    """The memory that bodies of a process share. Thread-safe."""

    def __init__(self, bytes_max: int, idle_bytes_max: int = _IDLE_BYTES_MAX) -> None:
        self._bytes_max, self._idle_bytes_max = bytes_max, idle_bytes_max
        self._lock = Lock()
        self._idle: deque[mmap.mmap] = deque()  # no lock: a map may return while the lock is held
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

    @property
    def idle_bytes(self) -> int:
        """Return the size of the maps that wait for the next body."""
        return sum(len(each) for each in tuple(self._idle))

    def take_map(self) -> mmap.mmap:
        """Return memory that nobody reads. What former bodies wrote there may be in it."""
        while True:
            try:
                map_ = self._idle.pop()
                map_.resize(len(map_))
            except BufferError:  # a reader is about to go, but has not gone yet
                continue
            except IndexError:
                return mmap.mmap(-1, _FIRST_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return map_

    def return_map(self, map_: mmap.mmap) -> None:
        """Keep memory that nobody reads any more for the next body, unless enough waits already."""
        if self.idle_bytes + len(map_) > self._idle_bytes_max:
            return
        if hasattr(mmap, "MADV_FREE"):
            map_.madvise(mmap.MADV_FREE)
        self._idle.append(map_)


_MEMORY = SpoolMemory(_SHARED_BYTES_MAX)


@contextmanager
def held(
    chunks: Iterator[bytes], settings: BodySettings, memory: SpoolMemory = _MEMORY
) -> Iterator[tuple[pa.NativeFile, int]]:
    """Receive a body; yield a file to read it from any place, and its size in bytes.

    TooLarge: it is larger than a spool may be. Unavailable: the disk takes nothing.
    """
    body = _Mapped(memory)
    taken = 0
    try:
        for chunk in chunks:
            # one chunk beyond the bounds is there for a moment
            body.append(chunk)
            if body.size > settings.spool_memory_bytes_max or not memory.take(len(chunk)):
                break
            taken += len(chunk)
        else:
            _check_size(body.size, settings.spool_bytes_max)
            yield pa.BufferReader(body.read()), body.size
            return
        with tempfile.TemporaryFile(prefix="rtolap-load-") as spool:
            size = write_spool(body.pieces(), spool, settings.spool_bytes_max)
            body.give_up()
            memory.give_back(taken)
            taken = 0
            spool.seek(size)
            size = write_spool(chunks, spool, settings.spool_bytes_max, size)
            yield pa.PythonFile(spool, mode="r"), size
    finally:
        memory.give_back(taken)


class _Mapped:
    """Memory of the system that grows where it lies, page by page: nothing is put together in the end.

    It returns to `memory` with `give_up`, or when nothing refers to what `read` has returned.
    """

    def __init__(self, memory: SpoolMemory) -> None:
        self.size = 0
        self._memory = memory
        self._map = memory.take_map()

    def append(self, chunk: bytes) -> None:
        end = self.size + len(chunk)
        if end > len(self._map):
            self._grow(max(end, 2 * len(self._map)))
        self._map[self.size : end] = chunk
        self.size = end

    def _grow(self, size: int) -> None:
        try:
            self._map.resize(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            if len(self._map) >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        except OSError as error:
            raise Unavailable(
                "a body cannot be held in memory", found=error.strerror, action="send it again later"
            ) from error

    def read(self) -> pa.Buffer:
        """Return the body, to which nothing can be appended any more."""
        # Arrow's buffers refer to the array, also parts of them: it goes with the last of them.
        whole = np.frombuffer(self._map, np.uint8, self.size)
        weakref.finalize(whole, self._memory.return_map, self._map).atexit = False
        return pa.py_buffer(whole)

    def give_up(self) -> None:
        """Return the memory of a body that has not been read. No other method may be called afterwards."""
        self._memory.return_map(self._map)

    def pieces(self) -> Iterator[bytes]:
        for start in range(0, self.size, _PIECE_BYTES):
            yield self._map[start : min(start + _PIECE_BYTES, self.size)]


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
