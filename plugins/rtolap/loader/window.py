"""Batches that are recorded and not settled. Bounded: who seals batches waits while it is full."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.ledger.offsets import OffsetsRecord
from rtolap.loader.content import Content


@dataclass
class Pending:
    """`content` is None where the range has to be read again. `must_ask`: a request may have been made, so
    that the state of the label comes first. `fails` counts refusals, `fails_seen` those after which the
    columns were looked at; `silent_since_s`: since when the sink has not answered."""

    record: OffsetsRecord
    content: Content | None
    must_ask: bool = False
    fails: int = 0
    fails_seen: int = 0
    last_fail: str = ""
    silent_since_s: float | None = None
    waiting_since_s: float | None = None

    @property
    def sequence(self) -> int:
        return self.record.sequence_id


class Window:
    """Thread-safe. `ordered`: one batch at a time, the oldest."""

    def __init__(self, size: int, *, ordered: Callable[[], bool]) -> None:
        self._size = size
        self._ordered = ordered
        self._waiting: dict[int, Pending] = {}
        self._taken: dict[int, Pending] = {}
        self._recovering: set[int] = set()
        self._changed = threading.Condition()

    def add(self, pending: Pending, *, recovered: bool = False) -> None:
        with self._changed:
            self._waiting[pending.sequence] = pending
            if recovered:
                self._recovering.add(pending.sequence)
            self._changed.notify_all()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether a batch may be added: nothing of an earlier process is left, and there is room."""
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout_s)

    def take(self, timeout_s: float = 0.0, choose: Callable[[list[int]], int] = min) -> Pending | None:
        """One to settle, for whoever takes it alone; None when there is none in time."""
        with self._changed:
            if not self._changed.wait_for(self._takeable, timeout_s):
                return None
            oldest_only = self._ordered()
            sequence = min(self._waiting) if oldest_only else choose(sorted(self._waiting))
            self._taken[sequence] = self._waiting.pop(sequence)
            return self._taken[sequence]

    def give_back(self, pending: Pending) -> None:
        with self._changed:
            self._waiting[pending.sequence] = self._taken.pop(pending.sequence)
            self._changed.notify_all()

    def settled(self, pending: Pending) -> None:
        with self._changed:
            del self._taken[pending.sequence]
            self._recovering.discard(pending.sequence)
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._taken)

    @property
    def is_recovering(self) -> bool:
        with self._changed:
            return bool(self._recovering)

    def _has_room(self) -> bool:
        return not self._recovering and len(self._waiting) + len(self._taken) < self._size

    def _takeable(self) -> bool:
        if not self._waiting:
            return False
        return not self._ordered() or not self._taken
