"""The files that hold vectors of READY versions, in memory."""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.errors import NotFound


class MemoryFiles:
    """Implements `metadata.vectors.VersionFiles`. `before_write` may raise, as a killed process would end."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0
        self.before_write: Callable[[str, bytes], None] = lambda path, data: None

    def read(self, path: str) -> bytes:
        self.reads += 1
        try:
            return self.kept[path]
        except KeyError as error:
            raise NotFound(f"no file {path}") from error

    def write(self, path: str, data: bytes) -> None:
        self.before_write(path, data)
        self.kept[path] = data
