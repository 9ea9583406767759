"""The memory of rows that are in no file yet, over all loads of a node."""

from __future__ import annotations

from threading import Lock


class LoadMemory:
    """Thread-safe. A load that adds while all together are over `bytes_max` writes files until it is down to
    its share; so there are never more than twice `bytes_max`, and nobody waits for anybody."""

    def __init__(self, bytes_max: int, loads_max: int) -> None:
        self._bytes_max = bytes_max
        self.share_bytes = bytes_max // loads_max
        self._lock = Lock()
        self._used: dict[object, int] = {}
        self._total = 0

    @property
    def used_bytes(self) -> int:
        return self._total

    def note_used(self, load: object, used_bytes: int) -> None:
        """Note the memory that a load uses now; 0 when it has ended."""
        with self._lock:
            self._total += used_bytes - self._used.pop(load, 0)
            if used_bytes:
                self._used[load] = used_bytes

    def has_to_write(self, load: object) -> bool:
        with self._lock:
            return self._total > self._bytes_max and self._used.get(load, 0) > self.share_bytes
