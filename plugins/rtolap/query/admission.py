"""The turns of statements: so many at a time in all, and so many of them for one user."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.base.errors import QueryError, TooManyAtOnce, Unavailable
from rtolap.query.cancel import Cancellation
from rtolap.query.engine_session import EngineSession, EngineSessions, LazyEngineSession


class AdmissionControl:
    """The admission of statements. It is thread-safe. Waiters get their turn in order, except that a user
    with fewer admitted statements goes first.

    Each waits for an event of its own: a turn that is given back wakes the one that gets it, and no other.
    """

    def __init__(self, total: int, per_user: int) -> None:
        self.total = total
        self.per_user = per_user
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._taken = 0  # turns of all users
        self._waiting: list[_Ticket] = []

    def acquire(self, user: str, timeout_s: float) -> bool:
        """Return False when there was none in time."""
        with self._lock:
            if not self._waiting and self._is_free_for(user):
                self._admitted(user)
                return True
            ticket = _Ticket(user)
            self._waiting.append(ticket)
            self._admit()
        if not ticket.admitted.is_set() and not ticket.admitted.wait(timeout_s):
            with self._lock:
                if not ticket.admitted.is_set():
                    self._waiting.remove(ticket)
                    return False
        return True

    def release(self, user: str) -> None:
        with self._lock:
            if not self._running[user]:
                raise ValueError(f"a turn of {user!r} was given back too many times")
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]
            self._taken -= 1
            if self._waiting:
                self._admit()

    def _admit(self) -> None:
        """Give turns to those who wait, while there are any."""
        while self._waiting and self._taken < self.total:
            able = [ticket for ticket in self._waiting if self._running[ticket.user] < self.per_user]
            if not able:
                return
            first = min(able, key=lambda ticket: self._running[ticket.user])
            self._waiting.remove(first)
            self._admitted(first.user)
            first.admitted.set()

    def _is_free_for(self, user: str) -> bool:
        return self._taken < self.total and self._running[user] < self.per_user

    def _admitted(self, user: str) -> None:
        self._running[user] += 1
        self._taken += 1


class _Ticket:
    """A statement that waits for a turn."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.admitted = threading.Event()


class Turns:
    """Admits statements, and opens and closes the engine's session of each. Thread-safe.

    `queue_wait_s` is the longest time that a statement waits for admission.
    """

    def __init__(self, engine: EngineSessions, admission: AdmissionControl, queue_wait_s: float) -> None:
        self._engine = engine
        self._admission = admission
        self._queue_wait_s = queue_wait_s

    @contextmanager
    def open(self, ending: Cancellation, *, is_over: bool = True) -> Iterator[EngineSession]:
        """Yield a session, which takes one of the engine when it needs it. It is given back behind the block
        where that `is_over`; otherwise only if the block fails, with what ended it as the error."""
        if not self._admission.acquire(ending.user, self._queue_wait_s):
            ending.close()
            raise TooManyAtOnce(
                "too many queries",
                expected=f"at most {self._admission.total} at a time, {self._admission.per_user} of one user",
                action="ask again later",
            )
        session = LazyEngineSession(self._engine, ending)
        try:
            ending.on_cancel(session.interrupt, until_over=True)
            ending.check()  # a session that is not taken yet has nothing to interrupt
            yield session
        except BaseException as error:
            self.finish(session, ending)
            stopped = ending.error()
            if stopped is not None and stopped is not error and isinstance(error, QueryError | Unavailable):
                raise stopped from error
            raise
        if is_over:
            self.finish(session, ending)

    def finish(self, session: EngineSession, ending: Cancellation) -> None:
        """Give the session and the turn back."""
        try:
            ending.close()
            session.close()
        finally:
            self._admission.release(ending.user)
