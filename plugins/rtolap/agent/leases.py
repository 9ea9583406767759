"""The leases of processes: how long each may still run without a renewal."""

from __future__ import annotations

from rtolap.agent.records import ProcessRecord
from rtolap.base.clock import Clock


class Leases:
    """Kept in memory only: after a restart of the agent they start over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[str, float] = {}

    def renew(self, record: ProcessRecord) -> None:
        self._until_s[record.key] = self._clock.monotonic_s() + record.spec.lease_s

    def left_s(self, key: str) -> float:
        """Seconds, 0 once it has expired."""
        return max(0.0, self._until_s.get(key, 0.0) - self._clock.monotonic_s())
