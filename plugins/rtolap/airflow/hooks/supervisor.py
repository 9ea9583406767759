"""Questions of a trigger to Airflow's supervisor: awaited, each for a bounded time, told apart by type.

All triggers of a triggerer share one event loop, and one channel to the process that reads Airflow's
database for them. That process stands still while the database does. A call that blocks, in the loop or in
one of the few threads beside it, then holds up triggers that have nothing to do with it, the stop of one and
the start of the next among them. So triggers ask by the functions here only. See docs/decisions/0042.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx
from airflow.sdk import BaseHook
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    ErrorResponse,
    GetConnection,
    GetHITLDetailResponse,
    GetTaskStates,
)

from rtolap.base.errors import NotFound, Unavailable
from rtolap.protocols.agent.messages import WaitingTask

ANSWER_S_MAX = 20.0
_PAUSE_S = 2.0


async def connection(conn_id: str) -> Connection | None:
    """Return the connection; None where Airflow has none. Raises Unavailable where that is not known."""
    async with _bounded(f"connection {conn_id}"):
        try:
            found: Connection = await BaseHook.aget_connection(conn_id)
            return found
        except AirflowNotFoundException:
            # Airflow says so, too, when it could not ask.
            if not hasattr(task_runner, "SUPERVISOR_COMMS"):
                return None
    try:
        await _ask(f"connection {conn_id}", GetConnection(conn_id=conn_id))
    except NotFound:
        return None
    raise Unavailable(f"connection {conn_id} could not be read", found="no answer before this one")


async def loaded_connection(conn_id: str, log: Any) -> Connection | None:
    """Return `connection`, and repeat the request until Airflow answers. Each failure is logged."""
    while True:
        try:
            return await connection(conn_id)
        except Unavailable as error:
            log.warning("connection %s is waited for: %s", conn_id, error)
            await asyncio.sleep(_PAUSE_S)


async def task_state(task: WaitingTask) -> str | None:
    """Return the state of the task; None while a cleared one is not scheduled yet. Raises Unavailable."""
    mapped = task.map_index >= 0
    answer = await _ask(
        f"the state of {task}",
        GetTaskStates(
            dag_id=task.dag_id,
            task_ids=[task.task_id],
            run_ids=[task.run_id],
            map_index=task.map_index if mapped else None,
        ),
    )
    name = f"{task.task_id}_{task.map_index}" if mapped else task.task_id
    state = answer.task_states.get(task.run_id, {}).get(name)
    return None if state is None else str(getattr(state, "value", state))


async def has_question(ti_id: UUID) -> bool:
    """Return True if there is a question to a person by that task. Raises Unavailable."""
    try:
        await _ask(f"the question of task {ti_id}", GetHITLDetailResponse(ti_id=ti_id))
    except NotFound:
        return False
    return True


async def _ask(what: str, message: Any) -> Any:
    """Ask Airflow's supervisor, and return its answer. Raises NotFound where Airflow has no such thing, and
    Unavailable where it does not say."""
    async with _bounded(what):
        try:
            answer = await task_runner.SUPERVISOR_COMMS.asend(message)
        except AirflowRuntimeError as refusal:
            answer = refusal.error
    if not isinstance(answer, ErrorResponse):
        return answer
    status = (answer.detail or {}).get("status_code")
    found = f"{answer.error.value} {answer.detail or ''}"
    if answer.error is ErrorType.CONNECTION_NOT_FOUND or status == httpx.codes.NOT_FOUND:
        raise NotFound(f"Airflow does not have {what}", found=found)
    raise Unavailable(f"Airflow did not answer about {what}", found=found)


@asynccontextmanager
async def _bounded(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            yield
    except TimeoutError as error:
        raise Unavailable(
            f"Airflow's supervisor did not answer about {what}",
            expected=f"an answer within {ANSWER_S_MAX:g} s",
        ) from error
