"""A step through a lifecycle's table. The tables themselves stand in the `states` modules."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from rtolap.base.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")


def step(
    table: Mapping[tuple[S, E], T], state: S, event: E, *, subject: str, history: object | None = None
) -> T:
    """Return the table's entry for an event in a state; IllegalTransition names what is legal, and the
    state history.
    """
    try:
        return table[state, event]
    except KeyError:
        legal = ", ".join(sorted(known for at, known in table if at is state)) or "nothing"
        raise IllegalTransition(
            f"{subject} cannot take {event}",
            expected=f"{legal} in {state}",
            found=event.value if history is None else f"history {history}",
        ) from None
