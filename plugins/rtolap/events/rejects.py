"""Refused records of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtolap.events.classify import Problem


@dataclass(frozen=True, slots=True)
class Rejects:
    """Refused records, ordered by their position in the input: `index`, reason, detail for people."""

    index: NDArray[np.int64]
    reason: list[str]
    detail: list[str]

    def __len__(self) -> int:
        return len(self.reason)


def rejects_of(problems: Mapping[int, Problem]) -> Rejects:
    """`problems` by position in the input."""
    order = sorted(problems)
    return Rejects(
        np.array(order, np.int64),
        [problems[place].reason for place in order],
        [problems[place].detail for place in order],
    )
