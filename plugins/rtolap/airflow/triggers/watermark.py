"""Waits until a cube's low watermark has passed an instant."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.triggers.fields import RtolapTrigger
from rtolap.base.errors import Unavailable


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
