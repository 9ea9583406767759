"""The oldest work that a loader's unit reports: a promise about what the table shows, pure.

The application says that all events before an instant (its level's *input*) are in the topic. So:

    1. take the input
    2. look up where the topic ends, in every partition it has then
    3. once everything up to these ends can be read in the table, no event before that input is missing in it

This holds for events in any order and needs no times of records; it is as sure as the application's own rule.
An instant that was once promised stays true, whoever owns the job.
"""

from __future__ import annotations

from rtolap.model.offsets import Offsets

EVERYTHING_MS = 0  # no event is older: nothing is promised
LOOKS_MAX = 64  # while a backlog is loaded; beyond it every second one is dropped, which only costs time


class OldestWorkTracker:
    """Not thread-safe."""

    def __init__(self) -> None:
        self.oldest_ms = EVERYTHING_MS
        self._looks: list[tuple[int, Offsets]] = []

    def look(self, input_ms: int | None, ends: Offsets | None) -> None:
        """`ends` were requested after `input_ms` was known. Either may be unknown: then nothing follows."""
        newest_ms = self._looks[-1][0] if self._looks else self.oldest_ms
        if input_ms is None or ends is None or input_ms <= newest_ms:
            return  # of equal inputs the first has the smaller ends
        self._looks.append((input_ms, ends))
        if len(self._looks) > LOOKS_MAX:
            del self._looks[1::2]

    def readable(self, visible: Offsets) -> int:
        """The oldest work, now that the table shows everything before `visible`."""
        while self._looks:
            input_ms, ends = self._looks[0]
            if any(visible.get(partition, 0) < end for partition, end in ends.items()):
                break
            self.oldest_ms = input_ms
            del self._looks[0]
        return self.oldest_ms
