"""Waits until a window of an application may close."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.triggers.fields import RtolapTrigger
from rtolap.airflow.windows import Window, explain_async
from rtolap.airflow.words import state_of
from rtolap.base.errors import Unavailable

TELL_S = 60.0  # how often the task's log is told what the window waits for


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
        answered_s = told_s = time.monotonic()
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
                    if answered_s - told_s > TELL_S:
                        told_s = answered_s
                        self.log.info(state_of(explanation))
                await asyncio.sleep(self.poll_s)
