"""Base classes of objects that hold something until they are closed, for use in `with` and `async with`."""

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


class AsyncCloseable(ABC):
    @abstractmethod
    async def close(self) -> None:
        """Release what it holds; harmless when that is done."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
