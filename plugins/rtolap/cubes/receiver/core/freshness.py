"""How long records take from their creation until answers have them, by Kafka's timestamps and our clock."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.kafka.interfaces import Batch

WINDOW_S = 60


class Freshness:
    """The longest delay of each second of the last minute. Owned by the core thread; any may read it.

    A producer whose clock is ahead makes its records look younger, one whose clock is behind older. Where
    the topic has the broker's time (LogAppendTime), the delay begins at the broker.
    """

    def __init__(self) -> None:
        self._longest_ms: Mapping[int, int] = {}

    def took(self, batch: Batch, now_ms: int, now_s: float) -> None:
        """Note a batch that answers have from now on."""
        if batch.create_ms is None:
            return
        created = batch.create_ms[batch.create_ms >= 0]
        if not len(created):
            return
        second, delay_ms = int(now_s), max(now_ms - int(created.min()), 0)
        if delay_ms > self._longest_ms.get(second, -1):
            kept = {at: ms for at, ms in self._longest_ms.items() if at > second - WINDOW_S}
            self._longest_ms = {**kept, second: delay_ms}

    def longest_ms(self, now_s: float) -> int | None:
        """Return the longest delay of the last minute; None where no record with a timestamp was read."""
        return max((ms for at, ms in self._longest_ms.items() if at > now_s - WINDOW_S), default=None)
