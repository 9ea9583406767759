"""A mapped file, as Arrow opens it without the risk that a page which its disk has lost ends the process."""

from __future__ import annotations

import os
from mmap import mmap

import pyarrow as pa

_READ_BYTES_MAX = 64 << 10  # Arrow's own: heads of messages and the footer


class MappedFile:
    """A file whose columns stay in its map.

    What Arrow looks into as it opens a file is read by a call first, which raises OSError where the disk has
    lost it: touching such a page of the map ends the process with SIGBUS. Columns are larger, and are not
    looked into.
    """

    closed = False

    def __init__(self, mapped: mmap, descriptor: int) -> None:
        """`descriptor` is of the same file, and is needed as long as Arrow reads heads."""
        self._view, self._descriptor = memoryview(mapped), descriptor
        self._at = 0

    def opened(self) -> pa.NativeFile:
        return pa.PythonFile(self, mode="r")

    def read(self, size_bytes: int = -1) -> memoryview:
        end = len(self._view) if size_bytes < 0 else self._at + size_bytes
        data = self._view[self._at : end]
        if len(data) <= _READ_BYTES_MAX:
            os.pread(self._descriptor, len(data), self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: map and descriptor belong to whoever has opened them."""
