"""Triggers of cubes: what their queue holds, and how far their watermarks and windows are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from rtolap.airflow.rebuilt import FAILED_AFTER_S, RebuildWatch
from rtolap.airflow.triggers.base import ProgressLog, RtolapTrigger
from rtolap.airflow.windows import Window, explain_async
from rtolap.airflow.words import state_of
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.protocols.coordinator.messages import Queue

ENTRIES_IN_EVENT_MAX = 100  # an event is a signal; a task that acts on it reads the queue itself


@dataclass(kw_only=True, eq=False, repr=False)
class QueueTrigger(RtolapTrigger, BaseEventTrigger):
    """Fires when something new stands in the queue, and again every `repeat_s` while it is not empty.

    The repetition covers segments that a failed run left. `cube` None means all cubes; `segment` narrows it
    further. It waits without end for a coordinator that does not answer, since a watcher has nobody to report
    to.
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


@dataclass(kw_only=True, eq=False, repr=False)
class WatermarkTrigger(RtolapTrigger):
    """Fires {"cube", "low_watermark_ms"} once it is at or beyond `at_least_ms`.

    Fires {"error"} when no coordinator has answered for `silence_s`; other errors fail the task at once.
    """

    cube: str
    at_least_ms: int
    silence_s: float = 600.0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        last_answer_s = time.monotonic()
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    reached_ms = (await coordinator.watermark(self.cube)).low_watermark_ms
                    last_answer_s = time.monotonic()
                except Unavailable as error:
                    reached_ms = None
                    self.log.warning("the watermark of %s cannot be read: %s", self.cube, error)
                    if time.monotonic() - last_answer_s > self.silence_s:
                        yield TriggerEvent({"cube": self.cube, "error": str(error)})
                        return
                if reached_ms is not None and reached_ms >= self.at_least_ms:
                    yield TriggerEvent({"cube": self.cube, "low_watermark_ms": reached_ms})
                    return
                await asyncio.sleep(self.poll_s)


@dataclass(kw_only=True, eq=False, repr=False)
class RebuiltTrigger(RtolapTrigger):
    """Fires {"ready", "failed"} once no segment waits to be built any more: see `RebuildWatch`.

    It waits for a coordinator that does not answer; the sensor's time-out ends the wait.
    """

    cube: str
    segments: list[str]
    failed_after_s: float = FAILED_AFTER_S

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        watch, progress = RebuildWatch(self.segments, self.failed_after_s), ProgressLog(self.log)
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    seen = watch.look(await coordinator.segments(self.cube), time.monotonic())
                except Unavailable as error:
                    self.log.warning("the segments of %s cannot be read: %s", self.cube, error)
                else:
                    if not seen.waiting:
                        yield TriggerEvent({"ready": list(seen.ready), "failed": dict(seen.failed)})
                        return
                    progress.info(f"{self.cube}: {seen.text}")
                await asyncio.sleep(self.poll_s)


@dataclass(kw_only=True, eq=False, repr=False)
class WindowTrigger(RtolapTrigger):
    """Fires {"explanation"}, an `Explanation` as JSON, once the window may close.

    Fires {"error"} when no coordinator has answered for `silence_s` (never, if None); other errors fail the
    task at once. It holds nothing that another triggerer could not start over.
    """

    application: str
    window_end_ms: int
    lateness_ms: int = 0
    silence_s: float | None = 600.0

    @property
    def window(self) -> Window:
        return Window(self.application, self.window_end_ms, self.lateness_ms)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        answered_s = time.monotonic()
        progress = ProgressLog(self.log, answered_s)
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    explanation = await explain_async(coordinator, self.window)
                except Unavailable as error:
                    self.log.warning("%s cannot be asked: %s", self.window.application, error)
                    silent_s = time.monotonic() - answered_s
                    if self.silence_s is not None and silent_s > self.silence_s:
                        yield TriggerEvent({"error": str(error)})
                        return
                else:
                    answered_s = time.monotonic()
                    if explanation.may_close:
                        yield TriggerEvent({"explanation": explanation.model_dump(mode="json")})
                        return
                    progress.info(state_of(explanation))
                await asyncio.sleep(self.poll_s)
