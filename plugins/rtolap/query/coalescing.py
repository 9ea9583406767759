"""Equal work that waits to begin is done once, for all statements that wait for it.

A statement waits if equal work is under way, or as much work of any kind as there are processors. It waits
until some of that has ended, or for a bounded time; then one statement does the work for all that wait for
the same. No statement gets the result of work that had begun before it came, so each sees the events that
were there when it came. See docs/decisions/0035-equal-statements.md.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from rtolap.base.errors import RtolapError
from rtolap.query.cancel import Cancellation

T = TypeVar("T")
V = TypeVar("V")

WAIT_S_MAX = 0.05  # for equal work that is under way; then the same begins beside it
BESIDE_MAX = 2  # equal work under way at a time: more waits, however long that takes
CROWD_WAIT_S_MAX = 0.005  # for other work, where as much is under way as there are processors


class Once:
    """Things made of a result that several share, each once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value that the first caller with this key has made.

        If `make` raises an error, the next caller tries again.
        """
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            made: V = self._made[key]
            return made


@dataclass(frozen=True)
class Shared(Generic[T]):
    """A result that several statements may share.

    Attributes:
        statements: number of statements that the result was computed for.
        is_own: True if the caller's own thread has computed it.
        made: what the statements that share the result derive from it.
    """

    value: T
    statements: int
    is_own: bool
    made: Once


class Coalescing(Generic[T]):
    """Runs equal work once for all that wait for it. Thread-safe.

    The work runs on the thread of the waiting statement that has the most time left, so that no other
    statement is bound by its time-out.
    """

    def __init__(
        self,
        wait_s_max: float = WAIT_S_MAX,
        crowd_wait_s_max: float = CROWD_WAIT_S_MAX,
        at_once: int | None = None,
    ) -> None:
        """Create lanes without any work.

        Args:
            at_once: number of pieces of work under way at which new ones wait; None: as many as processors.
        """
        self._wait_s_max = wait_s_max
        self._crowd_wait_s_max = crowd_wait_s_max
        self._at_once = at_once or max(2, len(os.sched_getaffinity(0)))
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, _Lane[T]] = {}
        self._under_way = 0
        self._batches = itertools.count()

    @property
    def waiting(self) -> int:
        """The number of statements whose work has not begun."""
        with self._lock:
            batches = [lane.waiting for lane in self._lanes.values()]
        return sum(len(batch.members) for batch in batches if batch is not None)

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way, waiting or stored."""
        return not self._lanes

    def run(self, key: Hashable, work: Callable[[], T], ending: Cancellation) -> Shared[T]:
        """Return the result of `work`, or of the equal work of another with this `key`.

        An error of the tree is raised for all that wait for the work. Where the statement of the one that
        does it is ended, or anything else goes wrong there, another of them begins again. Raises what ends
        the statement itself.
        """
        lane, batch, member = self._join(key, ending)
        is_own = batch.leader is member or self._leads(lane, batch, member)
        if is_own:
            self._lead(lane, batch, member, work)
        if batch.error is not None:
            raise batch.error
        (value,) = batch.value
        return Shared(value, batch.statements, is_own, batch.made)

    def _join(self, key: Hashable, ending: Cancellation) -> tuple[_Lane[T], _Batch[T], _Member]:
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane(key)
            batch = lane.waiting
            if batch is None:
                batch = lane.waiting = _Batch(next(self._batches))
            member = _Member(ending, self._wait_s_max if lane.under_way else self._crowd_wait_s_max)
            batch.members.append(member)
            self._begin_next()
        return lane, batch, member

    def _leads(self, lane: _Lane[T], batch: _Batch[T], member: _Member) -> bool:
        """Wait until the member has to do the work, True, or it has been done."""
        member.ending.on_cancel(member.woken.set)
        wait_s: float | None = member.wait_s
        while True:
            is_woken = member.woken.wait(wait_s)
            with self._lock:
                if not is_woken:
                    wait_s, batch.is_due = None, True
                    self._begin_due(lane)
                if batch.leader is member:
                    return True
                if batch.is_over:
                    return False
                if member.ending.error() is not None:
                    self._leave(lane, batch, member)
                    member.ending.check()

    def _lead(self, lane: _Lane[T], batch: _Batch[T], member: _Member, work: Callable[[], T]) -> None:
        is_given_up = True
        try:
            member.ending.check()
            batch.value = (work(),)
            is_given_up = False
        except RtolapError as error:
            if member.ending.error() is not None:
                raise
            batch.error = error
            is_given_up = False
        finally:
            with self._lock:
                if is_given_up:
                    batch.members.remove(member)
                if is_given_up and batch.members:
                    batch.choose()
                else:
                    self._end(lane, batch)

    # -- under the lock -------------------------------------------------------------------------------------

    def _begin(self, lane: _Lane[T]) -> None:
        """Close the waiting batch to further members, and choose the member that does the work."""
        batch, lane.waiting = lane.waiting, None
        if batch is not None:
            lane.under_way += 1
            self._under_way += 1
            batch.statements = len(batch.members)
            batch.choose()

    def _begin_due(self, lane: _Lane[T]) -> None:
        if lane.waiting is not None and lane.waiting.is_due and lane.under_way < BESIDE_MAX:
            self._begin(lane)

    def _begin_next(self) -> None:
        """Begin the batches that have waited longest and have no equal work under way, up to the limit."""
        while self._under_way < self._at_once:
            able = [
                (lane.waiting.number, lane)
                for lane in self._lanes.values()
                if lane.waiting is not None and not lane.under_way
            ]
            if not able:
                return
            self._begin(min(able, key=itemgetter(0))[1])

    def _end(self, lane: _Lane[T], batch: _Batch[T]) -> None:
        lane.under_way -= 1
        self._under_way -= 1
        batch.is_over = True
        for member in batch.members:
            member.woken.set()
        self._begin_due(lane)
        self._begin_next()
        self._forget_empty(lane)

    def _leave(self, lane: _Lane[T], batch: _Batch[T], member: _Member) -> None:
        batch.members.remove(member)
        if batch is lane.waiting and not batch.members:
            lane.waiting = None
            self._forget_empty(lane)

    def _forget_empty(self, lane: _Lane[T]) -> None:
        if not lane.under_way and lane.waiting is None:
            del self._lanes[lane.key]


class _Member:
    """A statement that waits, on its own thread, for `wait_s` before the work is due."""

    def __init__(self, ending: Cancellation, wait_s: float) -> None:
        self.ending = ending
        self.wait_s = wait_s
        self.woken = threading.Event()


class _Batch(Generic[T]):
    """The statements that share a piece of work.

    It takes members until it has a leader, which does the work. When it is over it has a value or an error.

    Attributes:
        number: the position in the order of arrival.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.members: list[_Member] = []
        self.leader: _Member | None = None
        self.statements = 0
        self.is_due = False
        self.is_over = False
        self.value: tuple[T, ...] = ()
        self.error: RtolapError | None = None
        self.made = Once()

    def choose(self) -> None:
        self.leader = max(self.members, key=lambda member: member.ending.remaining_ms())
        self.leader.woken.set()


class _Lane(Generic[T]):
    """Equal work, of which a part is under way while the rest waits for the next run."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.under_way = 0
        self.waiting: _Batch[T] | None = None
