"""Which errors fail a task at once, and which are left to its retries: the same for operators and sensors.

    fails at once     a wrong definition or argument, a name that nobody knows, a name that is taken, a token
                      or right that is missing, a step that a lifecycle does not have, a refused plan
    is retried        everything else: peers that do not answer, states that pass, processes that have ended

Services are retried whatever has failed, ever more slowly: their run would else end, and the next one begin
at once. So are builds, whose state the coordinator keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from rtolap.base.errors import (
    AlreadyExists,
    DefinitionError,
    Forbidden,
    IllegalTransition,
    ImpossiblePlan,
    NotFound,
    PlanRefused,
    RtolapError,
    Unauthorized,
)

FINAL: tuple[type[RtolapError], ...] = (
    AlreadyExists,
    DefinitionError,
    Forbidden,
    IllegalTransition,
    ImpossiblePlan,
    NotFound,
    PlanRefused,
    Unauthorized,
)


@contextmanager
def final_at_once(*passing: type[RtolapError]) -> Iterator[None]:
    """Fail the task, without a retry, for what another try would not mend, unless it is `passing` here."""
    try:
        yield
    except FINAL as error:
        if isinstance(error, passing):
            raise
        raise AirflowFailException(str(error)) from error
