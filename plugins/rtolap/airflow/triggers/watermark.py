"""Waits until a cube's low watermark has passed an instant."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.base.errors import Unavailable


class WatermarkTrigger(BaseTrigger):
    """Fires {"cube", "low_watermark_ms"} once it is at or beyond `at_least_ms`.

    Fires {"error"} when no coordinator has answered for `silence_s`; other errors fail the task at once.
    """

    def __init__(
        self,
        *,
        cube: str,
        at_least_ms: int,
        poll_s: float = 5.0,
        silence_s: float = 600.0,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
    ) -> None:
        super().__init__()
        self.cube = cube
        self.at_least_ms = at_least_ms
        self.poll_s = poll_s
        self.silence_s = silence_s
        self.rtolap_conn_id = rtolap_conn_id
        self._hook = RtolapHook(rtolap_conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.WatermarkTrigger", {
            "cube": self.cube,
            "at_least_ms": self.at_least_ms,
            "poll_s": self.poll_s,
            "silence_s": self.silence_s,
            "rtolap_conn_id": self.rtolap_conn_id,
        }

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
