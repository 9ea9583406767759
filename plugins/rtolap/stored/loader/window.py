"""Batches that are recorded and not settled. Bounded: who seals batches waits while it is full."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.stored.loader.records.content import Content
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord


@dataclass
class Pending:
    """`content` is None where the range has to be read again. `must_ask`: a request may have been made, so
    that the state of the label comes first. `fails` counts refusals since `failing_since_s`, `fails_seen`
    those after which the columns were looked at; `silent_since_s`: since when the sink has not answered;
    `tries`: attempts in a row that did not settle it, `due_s`: when the next one may be; `said`: what the
    sink answered when it took the rows, `log_tries`: how often it did not give those that it refused."""

    record: OffsetsRecord
    content: Content | None
    must_ask: bool = False
    fails: int = 0
    fails_seen: int = 0
    failing_since_s: float | None = None
    last_fail: str = ""
    silent_since_s: float | None = None
    waiting_since_s: float | None = None
    tries: int = 0
    due_s: float = 0.0
    said: Loaded | None = None
    log_tries: int = 0

    @property
    def sequence(self) -> int:
        return self.record.sequence_id


class Window:
    """Thread-safe. `ordered`: one batch at a time, the oldest. `now_s`: the clock of `due_s`."""

    def __init__(self, size: int, *, ordered: Callable[[], bool], now_s: Callable[[], float]) -> None:
        self._size = size
        self._ordered = ordered
        self._now_s = now_s
        self._waiting: dict[int, Pending] = {}
        self._taken: dict[int, Pending] = {}
        self._recovering: set[int] = set()
        self._changed = threading.Condition()

    def add_batch(self, pending: Pending, *, recovered: bool = False) -> None:
        with self._changed:
            self._waiting[pending.sequence] = pending
            if recovered:
                self._recovering.add(pending.sequence)
            self._changed.notify_all()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait for room; return True if a batch may be added: nothing of an earlier process is left, and
        there is room.
        """
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout_s)

    def take_batch(self, timeout_s: float = 0.0, choose: Callable[[list[int]], int] = min) -> Pending | None:
        """One to settle, for whoever takes it alone; None when there is none in time."""
        with self._changed:
            takeable = self._changed.wait_for(self._takeable, min(timeout_s, self._first_due_in_s()))
            if not takeable:
                return None
            sequence = choose(takeable)
            self._taken[sequence] = self._waiting.pop(sequence)
            return self._taken[sequence]

    def give_back(self, pending: Pending, pause_s: float = 0.0) -> None:
        """Not settled; it may be taken again after the pause."""
        with self._changed:
            pending.tries += 1
            pending.due_s = self._now_s() + pause_s
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

    def _candidates(self) -> list[Pending]:
        if not self._ordered():
            return [self._waiting[sequence] for sequence in sorted(self._waiting)]
        return [self._waiting[min(self._waiting)]] if self._waiting and not self._taken else []

    def _takeable(self) -> list[int]:
        now_s = self._now_s()
        return [pending.sequence for pending in self._candidates() if pending.due_s <= now_s]

    def _first_due_in_s(self) -> float:
        due_s = min((pending.due_s for pending in self._candidates()), default=math.inf)
        return max(0.0, due_s - self._now_s())
