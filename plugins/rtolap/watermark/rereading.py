"""The counts of a partition that another consumer reads again: they are not new until it is where the former
one was.

A report says how many events were read of a host since the report before. A consumer that begins behind its
predecessor counts some of them a second time; and what its first report counts has no known beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.snapshot import NEVER, Indices, Instants, Mask


@dataclass(slots=True)
class Rereading:
    """By partition, how far each host had been read by former consumers; NEVER once that is reached again.
    Memory: 8 bytes per host, only for partitions that are being read again."""

    _former_ms: dict[int, Instants] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._former_ms.values())

    def replaced(self, partition: int, read_ms: Instants) -> None:
        """A consumer takes over; its predecessor had read so far, NEVER for hosts it had not."""
        before_ms = self._former_ms.get(partition, read_ms)
        self._former_ms[partition] = np.maximum(before_ms, read_ms)

    def former_ms(self, partition: int, hosts: Indices) -> Instants:
        """Return how far former consumers had read them; NEVER of those where that is reached again."""
        column = self._former_ms.get(partition)
        return np.full(hosts.size, NEVER) if column is None else column[hosts]

    def goes_on(self, partition: int, hosts: NDArray[np.integer], latest_ms: Instants) -> Mask:
        """Mark the hosts whose reports are of new events only: `latest_ms` is what this consumer reported of
        them before, NEVER if it has not."""
        spoken: Mask = latest_ms != NEVER
        column = self._former_ms.get(partition)
        if column is None:
            return spoken
        caught_up: Mask = spoken & (latest_ms >= column[hosts])
        column[hosts[caught_up]] = NEVER
        if not (column != NEVER).any():
            del self._former_ms[partition]
        return caught_up

    def grow(self, more: int) -> None:
        new = np.full(more, NEVER)
        self._former_ms = {p: np.concatenate((column, new)) for p, column in self._former_ms.items()}

    def keep(self, hosts: Indices) -> None:
        self._former_ms = {partition: column[hosts] for partition, column in self._former_ms.items()}

    def forget(self, hosts: Indices) -> None:
        for column in self._former_ms.values():
            column[hosts] = NEVER
