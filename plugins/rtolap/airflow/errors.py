"""What a failed task is worth another try: by the type of its error, the same for every operator and sensor.

    fails at once     a wrong definition or argument, a name that nobody knows, a name that is taken, a token or
                      right that is missing, a step that a lifecycle does not have, a plan that is refused
    is retried        everything else: peers that do not answer, states that pass, processes that have ended

Services are retried whatever has failed, ever more slowly: their run would else end, and the next begin at once.
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
    """Fail the task, without a retry, for what another try would not mend; what is `passing` here is retried."""
    try:
        yield
    except FINAL as error:
        if isinstance(error, passing):
            raise
        raise AirflowFailException(str(error)) from error
