"""Watches the stages of requests from one look to the next, for a page that asks again and again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable
from rtolap.fleet.monitoring.causes import Cause, cause_of
from rtolap.fleet.monitoring.collect import MissingSource, StageLook, StageReader
from rtolap.fleet.monitoring.slow import BrokerRequests, BrokerStanding, Key, SlowRule, SlowState, judge
from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.fleet.monitoring.stages import StageWindow, between
from rtolap.fleet.monitoring.tables import slow_document, stage_document

# A window that is shorter has hardly a request in it; after a longer silence nothing is compared any more.
EVERY_MS_MIN, SILENT_MS_MAX = 2_000, 600_000


@dataclass(frozen=True)
class SlowLook:
    """The last look at brokers.

    Attributes:
        window: the time since the look before; None after the first one.
        judged: brokers by kind of request, with the cause where one is not well.
        missing: sources that have not answered.
    """

    at_ms: int
    window: StageWindow | None
    judged: tuple[tuple[BrokerRequests, Cause | None], ...]
    missing: tuple[MissingSource, ...]

    def documents(self) -> list[dict[str, object]]:
        """Return each broker and kind of request for programs: its standing, the times of its stages, and its
        cause in words; null where nothing is known."""
        stages: dict[tuple[object, object], object] = {}
        if self.window is not None:
            stages = {(row["broker"], row["request"]): row["stages"] for row in stage_document(self.window)}
        found = []
        for row, cause in self.judged:
            document = slow_document(row, cause)
            times = stages.get((document["broker"], document["request"]), {})
            found.append({**document, "stages": times, "cause": "" if cause is None else cause.text})
        return found


class SlowWatch(Closeable):
    """A watch over the brokers of declared sources. It is thread-safe. Close it."""

    def __init__(self, sources: FleetSources, clock: Clock, rule: SlowRule | None = None) -> None:
        self.rule = rule or SlowRule()
        self._reader = StageReader(sources)
        self._clock = clock
        self._lock = threading.Lock()
        self._stages: StageLook | None = None
        self._standings: dict[Key, BrokerStanding] = {}
        self._last: SlowLook | None = None
        self._closed = False

    @classmethod
    def of_file(cls, path: Path, clock: Clock) -> SlowWatch:
        """Return a watch over the sources of a file. Raises DefinitionError for one that cannot be used."""
        return cls(read_sources(path), clock)

    def close(self) -> None:
        """Let no look begin any more, and wait for one that goes on."""
        with self._lock:
            self._closed = True
            self._reader.close()

    def look(self) -> SlowLook:
        """Look at the brokers, and judge what lies between this look and the last. Whoever asks again at once
        gets the last look. Raises Unavailable once it is closed."""
        with self._lock:
            if self._closed:
                raise Unavailable("the sources of brokers' metrics have changed", action="look again")
            now_ms = self._clock.now_ms()
            if self._last is not None and 0 <= now_ms - self._last.at_ms < EVERY_MS_MIN:
                return self._last
            before, stages = self._stages, self._reader.look(now_ms)
            if before is not None and not 0 <= now_ms - before.at_ms <= SILENT_MS_MAX:  # or the clock was set
                before, self._standings = None, {}
            self._stages = stages
            self._last = self._judged(before, stages)
            return self._last

    def _judged(self, before: StageLook | None, stages: StageLook) -> SlowLook:
        if before is None:
            return SlowLook(stages.at_ms, None, (), stages.missing)
        window = between(before.stages, before.at_ms, stages.stages, stages.at_ms)
        self._standings, rows = judge(self._standings, window, self.rule)
        judged = tuple(
            (row, None if row.standing.state is SlowState.NORMAL else cause_of(row, stages, window, {}))
            for row in rows
        )
        return SlowLook(stages.at_ms, window, judged, stages.missing)
