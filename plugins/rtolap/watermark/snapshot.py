"""The input of a rule: progress, rates and membership of all hosts of one source at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEVER = -(2**63)

Instants = NDArray[np.int64]
Rates = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The hosts at one moment: arrays of one length, a host at each index.

    A host counts while it is `listed` and not `drained`.

    Attributes:
        now_ms: the moment.
        names: of the hosts.
        latest_ms: the progress of each host; NEVER for a host that has not been seen.
        events_per_ms: the estimated rate.
        relative_error: the rate is at most (1 + error) times the estimate; infinite where nothing is known.
        listed: whether the host is in the list.
        drained: whether the host has left and was read to its end.
        dispersion: variance over mean of the number of events; 1 for a Poisson stream.
    """

    now_ms: int
    names: Sequence[str]
    latest_ms: Instants
    events_per_ms: Rates
    relative_error: Rates
    listed: Mask
    drained: Mask
    dispersion: float = 1.0

    @property
    def counting(self) -> Mask:
        return self.listed & ~self.drained


def as_ms(instant: int) -> int | None:
    """Convert an instant to milliseconds; NEVER is None in records and messages."""
    return None if instant == NEVER else int(instant)


def instant(value_ms: int | None) -> int:
    return NEVER if value_ms is None else value_ms
