"""Waits for the end of one generation of a process, keeping its lease alive."""

# mypy: disable-error-code="no-untyped-call"
# (Airflow's trigger classes carry no annotations.)
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.base.errors import NotFound, Refused, RtolapError, Unavailable
from rtolap.protocols.agent.client import AsyncAgentClient

# Why a trigger fires, beside the final states of the process itself.
SUPERSEDED = "SUPERSEDED"
LOST = "LOST"
DONE = "SUCCEEDED"

# A cut-off on_kill must not take the stop with it: the loop keeps only weak references to tasks.
_STOPS: set[asyncio.Task[None]] = set()

_ENDED_TASK = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class ProcessTrigger(BaseTrigger):
    """Fires {"process_key", "generation", "state", "reason"} once the process has ended, was replaced, or is
    lost.

    `dag_id`, `run_id`, `task_id`, `map_index` name the task that waits. `agent_silence_s`: how long the agent
    may be unreachable before the wait is given up; the process itself goes on meanwhile. `waits_when_done`:
    a process that has ended as was requested is no reason to fire; its task waits until somebody acts.
    """

    def __init__(
        self,
        *,
        process_key: str,
        generation: int,
        dag_id: str,
        run_id: str,
        task_id: str,
        map_index: int = -1,
        one_shot: bool = False,
        poll_s: float = 2.0,
        agent_silence_s: float = 600.0,
        waits_when_done: bool = False,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
    ) -> None:
        super().__init__()
        # Not `task_id`: the triggerer sets an attribute of that name.
        self._arguments: dict[str, Any] = {
            "process_key": process_key,
            "generation": generation,
            "dag_id": dag_id,
            "run_id": run_id,
            "task_id": task_id,
            "map_index": map_index,
            "one_shot": one_shot,
            "poll_s": poll_s,
            "agent_silence_s": agent_silence_s,
            "waits_when_done": waits_when_done,
            "rtolap_conn_id": rtolap_conn_id,
        }
        self.process_key = process_key
        self.generation = generation
        self.one_shot = one_shot
        self.poll_s = poll_s
        self.agent_silence_s = agent_silence_s
        self.waits_when_done = waits_when_done
        self._told = False
        self._hook = RtolapHook(rtolap_conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.ProcessTrigger", dict(self._arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._hook.load()
        async with self._hook.async_agent() as agent:
            last_answer_s = time.monotonic()
            while True:
                try:
                    event = await self._look(agent)
                    last_answer_s = time.monotonic()
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
        if status.state == DONE and self.waits_when_done:
            if not self._told:
                self._told = True
                last = status.log_tail[-1] if status.log_tail else status.reason
                self.log.info("%s has ended as it was told to; clear the task: %s", status.key, last)
            return None
        return None if status.is_live else self._event(status.state, status.reason)

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
        """Stop the process if its task was really ended by somebody.

        The call comes spuriously from a stalled triggerer, and is cut off after about a second: so the stop
        is a task of its own, and it looks first. A missed stop ends with the lease.
        """
        stop = asyncio.create_task(self._stop_if_ended())
        _STOPS.add(stop)
        stop.add_done_callback(_STOPS.discard)
        await asyncio.shield(stop)

    async def _stop_if_ended(self) -> None:
        try:
            if not self.should_stop(await self.task_state()):
                return
            await self._hook.load()
            async with self._hook.async_agent() as agent:
                status = await agent.stop(self.process_key, self.generation)
            self.log.info("%s generation %d: %s", self.process_key, self.generation, status.state)
        except RtolapError as error:
            self.log.warning("%s is left to its lease: %s", self.process_key, error)

    def should_stop(self, state: str | None) -> bool:
        """`deferred`: nobody acted. A cleared task starts again soon: what it builds is left for it to adopt,
        a long-running process is stopped, so that the next generation finds it gone.
        """
        if state == "deferred":
            self.log.warning("%s: the task still waits, so the process is left alone", self.process_key)
            return False
        return state in _ENDED_TASK or not self.one_shot

    async def task_state(self) -> str | None:
        """State of the waiting task; None while a cleared one is not scheduled yet."""
        wanted = self._arguments
        mapped = wanted["map_index"] >= 0
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=wanted["dag_id"],
            task_ids=[wanted["task_id"]],
            run_ids=[wanted["run_id"]],
            map_index=wanted["map_index"] if mapped else None,
        )
        name = f"{wanted['task_id']}_{wanted['map_index']}" if mapped else wanted["task_id"]
        state = states.get(wanted["run_id"], {}).get(name)
        return None if state is None else str(getattr(state, "value", state))
