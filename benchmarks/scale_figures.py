"""What `benchmarks.scale` shows and what it counts requests with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.store import Operation, Versioned

from tests.support.twins.metadata import MemoryStore

HOUR_MS = 3_600_000
START_MS = 1_700_000_400_000 // HOUR_MS * HOUR_MS


class CountingStore(ForwardingStore):
    """Counts the requests that a service sends, and the bytes that it gets."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.requests = 0
        self.read_bytes = 0

    def get(self, path: str) -> Versioned | None:
        self.requests += 1
        node = super().get(path)
        self.read_bytes += len(node.data) if node else 0
        return node

    def children(self, path: str) -> tuple[str, ...]:
        self.requests += 1
        return super().children(path)

    def commit(self, operations: Sequence[Operation]) -> None:
        self.requests += 1
        super().commit(operations)


@dataclass
class Figure:
    """One line of the table.

    Attributes:
        what: what was done or is kept.
        seconds: processor time; None where it is a size.
        requests: to ZooKeeper.
        bytes: kept, or read from ZooKeeper.
        note: what the figure is of; `*` where it was extrapolated.
    """

    what: str
    seconds: float | None = None
    requests: int | None = None
    bytes: int | None = None
    note: str = ""
