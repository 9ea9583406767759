"""The time for which a consumer may begin work although ZooKeeper may have ended its session meanwhile.

ZooKeeper ends a session that it has not heard of for the session's timeout. A read that was answered proves
that the session lived when the read was sent, so until a timeout after that nobody else can hold the shares.
A process that was stopped for longer finds its lease over when it wakes up, before it has heard from anybody.

What writes to Kafka or loads a table is fenced by the journal anyway. The lease is for listeners that nothing
else keeps back: functions.
"""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.clock import Clock


class Lease:
    """A lease of one share. It may be read from any thread."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._until_s = -float("inf")

    def begin(self) -> Callable[[], None]:
        """Return a function that renews the lease. Call it once a read that is sent after `begin` is
        answered."""
        began_s = self._clock.monotonic_s()

        def renew() -> None:
            self._until_s = began_s + self._timeout_s

        return renew

    def end(self) -> None:
        self._until_s = -float("inf")

    def holds(self) -> bool:
        return self._clock.monotonic_s() < self._until_s
