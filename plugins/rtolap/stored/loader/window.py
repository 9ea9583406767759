"""Batches that are recorded and not settled: how many there may be, and how long each is tried."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.stored.loader.records.content import Content
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.offsets import Loaded, OffsetsRecord

FAILS_MAX = 8  # of one batch, and for so long: without its nodes a front end answers at once, and says no
FAILING_S = 120.0
SILENT_S = 1_800.0
COMMIT_LATE_S = 60.0  # a second phase, which has no body, reaches the sink by then or never
_STUCK_FACTOR = 3
_FILTERED = "too many filtered rows"


@dataclass
class Pending:
    """A batch that is not loaded yet. Times are those of the window's clock.

    Attributes:
        content: the records; None where the range must be read again.
        must_ask: True if a request may have been made, so that the label's state must be read first.
        fails: the number of refusals since `failing_since_s`.
        fails_seen: the value of `fails` at which the columns were read last.
        failing_since_s: the time of the first refusal; None where there is none.
        silent_since_s: since when the sink has not answered; None while it answers.
        waiting_since_s: since when the batch waits; None while it does not.
        tries: the attempts in a row that did not settle the batch.
        due_s: the earliest time of the next attempt.
        said: the sink's answer when it accepted the rows; None before.
        is_durable: True once the sink has said that the rows are committed.
        log_tries: how often the sink did not return the rows that it refused.
        commit_until_s: until when a second phase of an earlier attempt may reach the sink; 0 where there is
            none.
    """

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
    is_durable: bool = False
    log_tries: int = 0
    commit_until_s: float = 0.0

    @property
    def sequence(self) -> int:
        return self.record.sequence_id


class Window:
    """The bounded set of batches that are not loaded. Sealing a batch waits while it is full. Thread-safe.

    Args:
        ordered: returns True if batches are loaded one at a time, the oldest first.
        now_s: the clock of `Pending.due_s`.
    """

    def __init__(self, size: int, *, ordered: Callable[[], bool], now_s: Callable[[], float]) -> None:
        self._size = size
        self._ordered = ordered
        self._now_s = now_s
        self._waiting: dict[int, Pending] = {}
        self._taken: dict[int, Pending] = {}
        self._recovering: set[int] = set()
        self._frozen_from = math.inf
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
        """Take a batch to settle, exclusively for the caller; return None if none is due in time."""
        with self._changed:
            takeable = self._changed.wait_for(self._takeable, min(timeout_s, self._first_due_in_s()))
            if not takeable:
                return None
            sequence = choose(takeable)
            self._taken[sequence] = self._waiting.pop(sequence)
            return self._taken[sequence]

    def give_back(self, pending: Pending, pause_s: float = 0.0) -> None:
        """Give a batch back unsettled. It may be taken again after the pause."""
        with self._changed:
            pending.tries += 1
            pending.due_s = self._now_s() + pause_s
            self._waiting[pending.sequence] = self._taken.pop(pending.sequence)
            self._changed.notify_all()

    def freeze_from(self, first: int) -> bool:
        """Freeze the batches from number `first` on. Return True once none of them is being settled."""
        with self._changed:
            self._frozen_from = first
            return not any(sequence >= first for sequence in self._taken)

    def withdraw_frozen(self) -> None:
        """Remove the frozen batches: the ledger no longer has them."""
        with self._changed:
            remaining = {number: one for number, one in self._waiting.items() if number < self._frozen_from}
            self._waiting, self._frozen_from = remaining, math.inf
            self._recovering &= remaining.keys() | self._taken.keys()
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
        waiting = [self._waiting[number] for number in sorted(self._waiting) if number < self._frozen_from]
        if not self._ordered():
            return waiting
        return waiting[:1] if not self._taken else []

    def _takeable(self) -> list[int]:
        now_s = self._now_s()
        return [pending.sequence for pending in self._candidates() if pending.due_s <= now_s]

    def _first_due_in_s(self) -> float:
        due_s = min((pending.due_s for pending in self._candidates()), default=math.inf)
        return max(0.0, due_s - self._now_s())


class SinkError(Exception):
    """The sink refused a call, or did not answer (`silent`)."""

    def __init__(self, error: RtolapError) -> None:
        super().__init__(str(error))
        self.silent = isinstance(error, Unavailable)


class BatchRetryBudget:
    """The retry budget of a batch, for a sink that does not answer, refuses the batch or does not finish.

    Every method raises Stopped once the budget is spent.

    Args:
        timeout_ms: the timeout of a request to the sink.
        silent_s: how long the sink may give no answer.
    """

    def __init__(self, clock: Clock, *, timeout_ms: int, silent_s: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._silent_s = silent_s

    def note_error(self, pending: Pending, error: SinkError) -> None:
        if not error.silent:
            self.failed(pending, str(error))
            return
        now_s = self._clock.monotonic_s()
        if pending.silent_since_s is None:
            pending.silent_since_s = now_s
        silent_s = now_s - pending.silent_since_s
        if silent_s > self._silent_s:
            raise Stopped(
                StopCause.SINK_UNAVAILABLE,
                f"no answer for {silent_s:.0f} s",
                found=str(error),
                action="start the loader again when the sink is back",
            )

    def failed(self, pending: Pending, words: str) -> None:
        """Count a failure: the next attempt looks up the outcome of this one."""
        pending.fails += 1
        pending.last_fail = words
        if pending.failing_since_s is None:
            pending.failing_since_s = self._clock.monotonic_s()

    def before_trying(self, pending: Pending) -> None:
        """Check the budget. The caller is certain that the batch is not in the table."""
        if pending.failing_since_s is None:
            return
        failing_s = self._clock.monotonic_s() - pending.failing_since_s
        filtered = _FILTERED in pending.last_fail.lower()
        if filtered or (pending.fails >= FAILS_MAX and failing_s >= FAILING_S):
            cause = StopCause.TOO_MANY_FILTERED if filtered else StopCause.SINK_REFUSES
            raise Stopped(
                cause,
                f"batch {pending.sequence} cannot be loaded",
                found=pending.last_fail,
                action="mend the table, the columns or the tolerance, and start the loader again",
            )

    def in_prepare(self, pending: Pending) -> None:
        """Note the sink's word that an earlier request still runs."""
        now_s = self._clock.monotonic_s()
        if pending.waiting_since_s is None:
            pending.waiting_since_s = now_s
        if (now_s - pending.waiting_since_s) * 1000 > _STUCK_FACTOR * self._timeout_ms:
            raise Stopped(
                StopCause.STUCK,
                f"label {pending.record.label} is still in PREPARE",
                expected=f"an end within {self._timeout_ms} ms",
                action="look at the sink, then start the loader again",
            )
