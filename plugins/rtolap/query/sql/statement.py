"""A statement as the service knows it: its text, and what a worker has read in that. It holds no tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from rtolap.base.errors import QueryError

Parameters = Sequence[object] | Mapping[str, object]
Explain = Literal["plan", "analyze"]  # EXPLAIN shows what would be done, EXPLAIN ANALYZE what was done
UserValue = str | int | float | Decimal | bytes | None


def positional_names(count: int) -> tuple[str, ...]:
    """Return the names of that many `?`, in the order of the text."""
    return tuple(f"p{number}" for number in range(1, count + 1))


@dataclass(frozen=True)
class SqlStatement:
    """A query that is ready to run.

    Attributes:
        database: the database of tables that the text names without one; None where only cubes and lookups
            are.
        parameters: names of the parameters: `p1`, `p2`, … in the order of their `?`, or the names in `:name`.
        session_names: the names whose values come from the session: `@@variable`, `@name`, or a function's
            name.
        has_functions: True if the query may read the clock, so that the session's time zone matters.
        given: the session's values for `session_names`.
        zone: the session's time zone; None for UTC, and where it does not matter.
    """

    text: str
    database: str | None
    explain: Explain | None
    parameters: tuple[str, ...]
    session_names: tuple[str, ...] = ()
    has_functions: bool = False
    given: Mapping[str, UserValue] = field(default_factory=dict)
    zone: str | None = None

    def bind(self, parameters: Parameters) -> dict[str, object]:
        """Return values by parameter name. Raises QueryError when there are too few or too many."""
        if isinstance(parameters, Mapping):
            given = {str(name): value for name, value in parameters.items()}
        else:
            given = dict(zip(self.parameters, parameters, strict=False))
            if len(parameters) != len(self.parameters):
                raise QueryError(
                    "wrong number of parameters", expected=len(self.parameters), found=len(parameters)
                )
        if set(given) != set(self.parameters):
            raise QueryError(
                "wrong parameters",
                expected=", ".join(self.parameters)[:200] or "none",
                found=", ".join(given)[:200] or "none",
            )
        return given
