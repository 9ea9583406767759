"""Stops of processes whose task has ended: at once after a kill, and later where a kill was missed.

An expired lease says that nobody renews it, not why: a triggerer under load, a successor on its way, an
Airflow that is being updated, or a task that was marked failed before its trigger ran. Airflow knows which.
So whoever stops a process asks it first, and where no answer comes, nothing is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rtolap.airflow.hooks import supervisor
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.protocols.agent.client import AsyncAgentClient
from rtolap.protocols.agent.messages import ProcessStatus, WaitingTask

log = logging.getLogger(__name__)

ENDED_TASK = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
DEFERRED = "deferred"
SWEEP_S = 60.0
_PAUSE_S_MAX = 30.0
_DECIDED_S_MAX = 3600.0  # then it gives up: the sweep finds an unattended process anyway

# The loop keeps only weak references to tasks.
_STOPS: set[asyncio.Task[None]] = set()
_SWEPT_S: dict[str, float] = {}  # agent → when one of this triggerer's triggers looked for missed kills


def stop_when_ended(hook: RtolapHook, key: str, generation: int, task: WaitingTask) -> None:
    """Begin to stop the process if its task was ended by somebody, and return at once.

    A trigger is also cancelled where its triggerer has stood still and another one has it: its task still
    waits. A cleared task starts again, and its next generation replaces this one. The process runs until
    then, whatever delays the next generation.
    """
    stop = asyncio.create_task(_stop_when_ended(hook, key, generation, task))
    _STOPS.add(stop)
    stop.add_done_callback(_STOPS.discard)


async def settled() -> None:
    """Wait until all that was begun is done."""
    while _STOPS:
        await asyncio.wait(tuple(_STOPS))


async def _stop_when_ended(hook: RtolapHook, key: str, generation: int, task: WaitingTask) -> None:
    began_s, pause_s = time.monotonic(), 1.0
    await hook.load()
    async with hook.async_agent() as agent:
        while time.monotonic() - began_s < _DECIDED_S_MAX:
            try:
                if await _decided(agent, key, generation, task):
                    return
            except RtolapError as error:
                log.warning("whether %s is to be stopped is not known yet: %s", key, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
    log.warning("%s generation %d goes on, since the end of its task was not seen", key, generation)


async def _decided(agent: AsyncAgentClient, key: str, generation: int, task: WaitingTask) -> bool:
    try:
        status = await agent.get(key)
    except NotFound:
        return True
    if status.generation != generation or not status.is_live:
        return True
    state = await supervisor.task_state(task)
    if state == DEFERRED:
        log.warning("%s goes on, since its task still waits", key)
        return True
    if state not in ENDED_TASK:
        return False
    await _stop(agent, status, state)
    return True


async def sweep(agent: AsyncAgentClient, address: str) -> None:
    """Stop unattended services of the agent whose tasks have ended, unless that was looked at lately.

    A build ends by itself, and may be waited for by another task than the one that has started it.
    """
    now_s = time.monotonic()
    if now_s - _SWEPT_S.get(address, -SWEEP_S) < SWEEP_S:
        return
    _SWEPT_S[address] = now_s
    for status in await agent.processes():
        task = WaitingTask.of(status.labels)
        if status.is_unattended and not status.one_shot and task is not None:
            try:
                state = await supervisor.task_state(task)
            except (NotFound, Unavailable) as error:
                log.warning("whether %s is still wanted is not known: %s", status.key, error)
                continue
            if state in ENDED_TASK:
                await _stop(agent, status, str(state))


async def _stop(agent: AsyncAgentClient, status: ProcessStatus, task_state: str | None) -> None:
    ended = await agent.stop(status.key, status.generation)
    log.info("%s generation %d: %s, for its task is %s", ended.key, ended.generation, ended.state, task_state)
