"""A base class of objects that hold something until they are closed, for use in a `with` statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    @abstractmethod
    def close(self) -> None:
        """Release what it holds; harmless when that is done."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
