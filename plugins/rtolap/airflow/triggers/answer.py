"""Waits for a person's answer about a window, or for the window."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow.providers.standard.triggers.hitl import HITLTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent

from rtolap.airflow.hooks import supervisor
from rtolap.airflow.triggers.base import RtolapTrigger
from rtolap.airflow.triggers.cubes import WindowTrigger
from rtolap.base.errors import Unavailable

NO_QUESTION = "unasked"


@dataclass(kw_only=True, eq=False, repr=False)
class AnswerTrigger(RtolapTrigger):
    """Fires the event of Airflow's `HITLTrigger` or of `WindowTrigger`, whichever comes first, with "ti_id";
    `AddressedTrigger` says why. If there is no question, it fires {NO_QUESTION: True, "ti_id"}.

    Airflow's API resumes a task with the answer itself. This trigger is for the answer that was given before
    the task began to wait, and for a window that may close without one.
    """

    ti_id: str
    options: list[str]
    params: dict[str, dict[str, Any]]
    application: str
    window_end_ms: int
    lateness_ms: int = 0

    def _first(self) -> tuple[BaseTrigger, BaseTrigger]:
        answer = HITLTrigger(
            ti_id=UUID(self.ti_id),
            options=self.options,
            params={name: dict(param) for name, param in self.params.items()},
            timeout_datetime=None,
            poke_interval=self.poll_s,
        )
        window = WindowTrigger(
            application=self.application,
            window_end_ms=self.window_end_ms,
            lateness_ms=self.lateness_ms,
            poll_s=self.poll_s,
            silence_s=None,
            rtolap_conn_id=self.rtolap_conn_id,
        )
        return answer, window

    async def run(self) -> AsyncIterator[TriggerEvent]:
        if not await self._has_question():
            yield TriggerEvent({NO_QUESTION: True, "ti_id": self.ti_id})
            return
        waits = [asyncio.create_task(_first_event(trigger)) for trigger in self._first()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            first = next(wait for wait in waits if wait.done()).result()
            yield TriggerEvent({**first.payload, "ti_id": self.ti_id})
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _has_question(self) -> bool:
        while True:
            try:
                return await supervisor.has_question(UUID(self.ti_id))
            except Unavailable as error:
                self.log.warning("whether the question was asked is not known yet: %s", error)
                await asyncio.sleep(self.poll_s)


async def _first_event(trigger: BaseTrigger) -> TriggerEvent:
    async for event in trigger.run():
        return event
    raise AssertionError(f"{type(trigger).__name__} ended without an event")
