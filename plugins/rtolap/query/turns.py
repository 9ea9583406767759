"""The turn of one statement: admitted, a session of the engine to run in, and what ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.base.errors import QueryError, TooManyAtOnce, Unavailable
from rtolap.query.admission import AdmissionControl
from rtolap.query.cancel import Cancellation
from rtolap.query.session import LateSession, Session, Sessions


class Turns:
    """Thread-safe. `queue_wait_s`: how long a statement waits for admission."""

    def __init__(self, engine: Sessions, admission: AdmissionControl, queue_wait_s: float) -> None:
        self._engine = engine
        self._admission = admission
        self._queue_wait_s = queue_wait_s

    @contextmanager
    def open(self, ending: Cancellation, *, is_over: bool = True) -> Iterator[Session]:
        """Yield a session, which takes one of the engine when it needs it. It is given back behind the block
        where that `is_over`; otherwise only if the block fails, with what ended it as the error."""
        if not self._admission.acquire(ending.user, self._queue_wait_s):
            ending.close()
            raise TooManyAtOnce(
                "too many queries",
                expected=f"at most {self._admission.total} at a time, {self._admission.per_user} of one user",
                action="ask again later",
            )
        session = LateSession(self._engine, ending)
        try:
            ending.on_cancel(session.interrupt, until_over=True)
            yield session
        except BaseException as error:
            self.finish(session, ending)
            stopped = ending.error()
            if stopped is not None and stopped is not error and isinstance(error, QueryError | Unavailable):
                raise stopped from error
            raise
        if is_over:
            self.finish(session, ending)

    def finish(self, session: Session, ending: Cancellation) -> None:
        """Give the session and the turn back."""
        try:
            ending.close()
            session.close()
        finally:
            self._admission.release(ending.user)
