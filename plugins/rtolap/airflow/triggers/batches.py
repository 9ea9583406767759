"""Trigger of batches: whether all segments of one are history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.batches import BatchWatch
from rtolap.airflow.rebuilt import FAILED_AFTER_S
from rtolap.airflow.triggers.base import ProgressLog, RtolapTrigger
from rtolap.base.errors import Unavailable


@dataclass(kw_only=True, eq=False, repr=False)
class BatchTrigger(RtolapTrigger):
    """Fires {"text", "failed"} once the batch is history, or cannot become so: see `BatchWatch`.

    It waits for a coordinator that does not answer; the sensor's time-out ends the wait.
    """

    cube: str
    batch: str
    failed_after_s: float = FAILED_AFTER_S

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        watch, progress = BatchWatch(self.failed_after_s), ProgressLog(self.log)
        async with self._hook.async_coordinator() as coordinator:
            while True:
                try:
                    found = await coordinator.batch_progress(self.cube, self.batch)
                except Unavailable as error:
                    self.log.warning("batch %s of %s cannot be looked at: %s", self.batch, self.cube, error)
                else:
                    seen = watch.look(found, time.monotonic())
                    if seen.is_done or seen.failed:
                        yield TriggerEvent({"text": seen.text, "failed": dict(seen.failed)})
                        return
                    progress.info(f"{self.cube}: {seen.text}")
                await asyncio.sleep(self.poll_s)
