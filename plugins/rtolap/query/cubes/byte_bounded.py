"""A cache of values that is bounded in bytes, not in entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteBounded(Generic[V]):
    """A cache that drops the least recently used values first. Thread-safe.

    A value that is larger than the bound is not cached.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._bytes

    def find(self, key: str) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def keep(self, key: str, value: V, size_bytes: int) -> None:
        """Store a value in the place of any other value with the same key."""
        with self._lock:
            self._drop(key)
            if size_bytes > self._bytes_max:
                return
            self._entries[key] = (value, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._entries)))

    def discard(self, key: str) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: str) -> None:
        _, size_bytes = self._entries.pop(key, (None, 0))
        self._bytes -= size_bytes
