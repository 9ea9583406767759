"""Event times of what a producer has been given and the log does not hold yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count


class Unacknowledged:
    """Thread-safe. Bounded by the producer's own queue: one entry per call with records in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._flights: dict[int, list[int]] = {}  # [oldest event time, records that have not landed]

    def depart(self, event_ms: Sequence[int]) -> Callable[[int], None]:
        """Add one or more records. Call the returned function with how many of them were acknowledged, as
        they are."""
        number = next(self._numbers)
        with self._lock:
            self._flights[number] = [min(event_ms), len(event_ms)]

        def landed(records: int) -> None:
            with self._lock:
                flight = self._flights[number]
                flight[1] -= records
                if not flight[1]:
                    del self._flights[number]

        return landed

    def oldest_ms(self) -> int | None:
        with self._lock:
            return min((oldest_ms for oldest_ms, _ in self._flights.values()), default=None)
