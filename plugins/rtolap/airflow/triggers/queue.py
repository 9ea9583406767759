"""Waits for segments that are REMOTE_PERSISTED. Feeds the asset watcher and the queue sensor."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.triggers.fields import RtolapTrigger
from rtolap.base.errors import RtolapError
from rtolap.protocols.coordinator.messages import Queue

ENTRIES_IN_EVENT_MAX = 100  # an event is a signal; the queue itself is read by whoever acts on it


@dataclass(kw_only=True, eq=False, repr=False)
class QueueTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires when something new stands in the queue, and again every `repeat_s` while it is not empty.

    The repetition covers what a failed run left behind. `cube` None means all cubes; `segment` narrows it
    further. A coordinator that does not answer is waited for without end: a watcher has nobody to report to.
    """

    cube: str | None = None
    segment: str | None = None
    poll_s: float = 2.0
    repeat_s: float = 300.0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        known: frozenset[tuple[str, str, int]] = frozenset()
        signalled_s = time.monotonic()
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    segments = self.wanted(await coordinator.queue())
                except RtolapError as error:
                    self.log.warning("the queue cannot be read: %s", error)
                    await asyncio.sleep(self.poll_s)
                    continue
                overdue = bool(segments) and time.monotonic() - signalled_s > self.repeat_s
                if segments - known or overdue:
                    signalled_s = time.monotonic()
                    yield self._event(segments)
                known = segments
                await asyncio.sleep(self.poll_s)

    def wanted(self, queue: Queue) -> frozenset[tuple[str, str, int]]:
        return frozenset(
            (entry.cube, entry.segment, entry.version)
            for entry in queue.entries
            if self.cube in (None, entry.cube) and self.segment in (None, entry.segment)
        )

    def _event(self, segments: frozenset[tuple[str, str, int]]) -> TriggerEvent:
        named = sorted(segments)[:ENTRIES_IN_EVENT_MAX]
        entries = [{"cube": cube, "segment": segment, "version": version} for cube, segment, version in named]
        return TriggerEvent({"waiting": len(segments), "entries": entries})
