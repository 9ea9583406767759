"""Waits for the end of one generation of a process, renewing its lease and logging what happens to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import InitVar, dataclass
from typing import Any

from airflow.triggers.base import TriggerEvent

from rtolap.airflow.triggers.base import RtolapTrigger
from rtolap.airflow.triggers.health import HealthLog
from rtolap.airflow.triggers.orphans import stop_when_ended, sweep
from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.protocols.agent.client import AsyncAgentClient
from rtolap.protocols.agent.messages import ProcessStatus, WaitingTask

# Why a trigger fires, beside the final states of the process itself.
SUPERSEDED = "SUPERSEDED"
LOST = "LOST"
DONE = "SUCCEEDED"

_CRASH_LINES_MAX = 10


@dataclass(kw_only=True, eq=False, repr=False)
class ProcessTrigger(RtolapTrigger):
    """Fires {"process_key", "generation", "state", "reason"} once the process has ended, was replaced, or is
    lost.

    `dag_id`, `run_id`, `task_id`, `map_index` name the task that waits, whose log gets each step of the
    process's life. `agent_silence_s`: how long the agent may be unreachable before the wait is given up; the
    process itself goes on meanwhile. `waits_when_done`: a process that has ended as was requested is no
    reason to fire; its task waits until somebody acts.
    """

    process_key: str
    generation: int
    dag_id: str
    run_id: str
    task_id: InitVar[str]
    map_index: int = -1
    poll_s: float = 2.0
    agent_silence_s: float = 600.0
    waits_when_done: bool = False

    def __post_init__(self, task_id: str) -> None:
        super().__post_init__()
        self.waiting_task = WaitingTask(self.dag_id, self.run_id, task_id, self.map_index)
        self._steps_seen = 0
        self._end_logged = False
        self._health = HealthLog(self._hook, self.log)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, arguments = super().serialize()
        return path, {**arguments, "task_id": self.waiting_task.task_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        async with self._hook.async_agent() as agent:
            last_answer_s = time.monotonic()
            while True:
                try:
                    event = await self._look(agent)
                    last_answer_s = time.monotonic()
                    if event is None:
                        await sweep(agent, self._hook.endpoints.agent())
                except Unavailable as error:
                    event = None
                    silent_s = time.monotonic() - last_answer_s
                    self.log.warning("the agent has been silent for %.0f s: %s", silent_s, error)
                    if silent_s > self.agent_silence_s:
                        event = self._event(LOST, f"the agent has been silent for {silent_s:.0f} s")
                if event is not None:
                    yield event
                    return
                await asyncio.sleep(self.poll_s)

    async def _look(self, agent: AsyncAgentClient) -> TriggerEvent | None:
        try:
            status = await agent.renew(self.process_key, self.generation)
        except NotFound as error:
            return self._event(LOST, str(error))
        except Refused as error:
            return self._event(SUPERSEDED, str(error))
        self._log_steps(status)
        if status.state == DONE and self.waits_when_done:
            if not self._end_logged:
                self._end_logged = True
                last = status.log_tail[-1] if status.log_tail else status.reason
                self.log.info("%s has ended as requested; clear the task: %s", status.key, last)
            return None
        if not status.is_live:
            return self._event(status.state, status.reason)
        await self._health.look(status)
        return None

    def _log_steps(self, status: ProcessStatus) -> None:
        """Log what has happened to the process, each step once; all of them when the trigger begins."""
        for step in status.steps:
            if step.number <= self._steps_seen:
                continue
            self._steps_seen = step.number
            crashed = step.event in ("CRASHED", "GAVE_UP")
            log = self.log.warning if crashed else self.log.info
            log("%s generation %d is %s: %s", status.key, status.generation, step.state, step.reason)
            if crashed and step is status.steps[-1] and status.log_tail:
                log("its last lines:\n%s", "\n".join(status.log_tail[-_CRASH_LINES_MAX:]))

    def _event(self, state: str, reason: str) -> TriggerEvent:
        return TriggerEvent(
            {
                "process_key": self.process_key,
                "generation": self.generation,
                "state": state,
                "reason": reason,
            }
        )

    async def on_kill(self) -> None:
        """Have the process stopped if its task was really ended by somebody.

        Returns at once: Airflow starts no other trigger of the same number, so not that of the next
        generation either, before this one has ended.
        """
        stop_when_ended(self._hook, self.process_key, self.generation, self.waiting_task)
