"""An attempt on the database, repeated until it is known to stand, or given up with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
import tenacity

from rtolap.base.errors import CommitUnknown, Unauthorized, Unavailable
from rtolap.stored.metastore.dialects import Dialect

R = TypeVar("R")

_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0


class Transient(Exception):
    """The attempt is to be repeated. `in_doubt`: its commit may be durable."""

    def __init__(self, error: sa.exc.DBAPIError, *, in_doubt: bool) -> None:
        super().__init__(reason(error))
        self.in_doubt = in_doubt
        self.lost = error.connection_invalidated


class RetryBudget:
    """Retry budget of a ledger, and the errors that it takes for passing. Thread-safe."""

    def __init__(self, dialect: Dialect, retry_budget_s: float, sleep: Callable[[float], None]) -> None:
        self._dialect = dialect
        self._retry_budget_s = retry_budget_s
        self._sleep = sleep

    def repeat(self, purpose: str, attempt: Callable[[], R]) -> R:
        """Raises Unavailable, CommitUnknown, Unauthorized, and what the attempt raises otherwise."""
        in_doubt = False

        def once() -> R:
            nonlocal in_doubt
            try:
                return attempt()
            except Transient as error:
                in_doubt = in_doubt or error.in_doubt
                raise
            except sa.exc.DBAPIError as error:
                if self._dialect.is_denied(error):
                    raise Unauthorized(
                        f"{purpose}: the database refuses the login", found=reason(error)
                    ) from None
                if self._dialect.is_lost(error) or self._dialect.is_busy(error):
                    raise Transient(error, in_doubt=False) from error
                raise

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            wait=tenacity.wait_random_exponential(multiplier=_PAUSE_S, max=_PAUSE_MAX_S),
            stop=tenacity.stop_after_delay(self._retry_budget_s),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(once)
        except Transient as error:
            kind = CommitUnknown if in_doubt else Unavailable
            raise kind(
                f"{purpose}: the ledger's database did not answer within {self._retry_budget_s:g} s",
                found=str(error),
                action="read back before acting" if in_doubt else "try again later",
            ) from error


def reason(error: sa.exc.DBAPIError) -> str:
    """The driver's own words, without the statement and its values."""
    return str(error.orig)
