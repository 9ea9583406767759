"""The routes by which a person asks statements: for who may start the build DAG, within the bounds of `ask`.

A statement runs in the query service as `airflow:NAME`, with a plain user's rights, although the connection
has the cluster's token. When the browser goes away, by a click on Cancel too, the call to the service is
cancelled, and the service ends the statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page import ask
from rtolap.airflow.page.answers import json_answer
from rtolap.airflow.page.rights import asker
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, TooLarge
from rtolap.protocols.query.async_client import Answered, AsyncQueryClient
from rtolap.protocols.query.messages import ARROW_STREAM

router = APIRouter(prefix="/ask", dependencies=[Depends(asker)])

T = TypeVar("T")
_NO_STORE = {"cache-control": "no-store"}
_GONE = 499  # nobody reads it: the browser has closed the connection

_turns = ask.Turns()


@router.post("/answers")
async def answer(request: Request, user: GetUserDep) -> Response:
    """Run a statement, and answer its first rows."""
    found = await _asked(request, str(user.get_name()), arrow=False)
    if found is None:
        return Response(status_code=_GONE)
    return json_answer(ask.shown(found.message(), found.session_token))


@router.post("/arrow")
async def arrow(request: Request, user: GetUserDep) -> Response:
    """Run a statement, and answer as many rows as are shown, as an Arrow stream."""
    found = await _asked(request, str(user.get_name()), arrow=True)
    if found is None:
        return Response(status_code=_GONE)
    return Response(found.content, media_type=ARROW_STREAM, headers=_NO_STORE)


@router.get("/catalogue")
async def catalogue() -> Response:
    async with await _client() as client:
        found = await client.ask(ask.CATALOGUE_SQL, ask.CATALOGUE)
    return json_answer(ask.known_tables(found.message()))


@router.get("/history")
async def history(user: GetUserDep) -> Response:
    """Answer the person's own statements, the latest first."""
    person = ask.asking_as(str(user.get_name()))
    async with await _client() as client:
        found = await client.ask(ask.HISTORY_SQL, ask.HISTORY, parameters=[person])
    return json_answer(ask.past_statements(found.message()))


async def _asked(request: Request, person: str, *, arrow: bool) -> Answered | None:
    """Return the answer to the statement of a request, or None where its browser has gone away."""
    asked = await _read(request)
    bounds = ask.DOWNLOADED if arrow else ask.SHOWN
    with _turns.taken(person):
        async with await _client(ask.asking_as(person)) as client:
            work = client.ask(asked.sql, bounds, session_token=asked.session_token, arrow=arrow)
            return await _unless_gone(request, work)


async def _read(request: Request) -> ask.AskRequest:
    """Return the request's body. Only a page of this server can have a browser send JSON with credentials."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise DefinitionError("a statement comes as JSON", expected="Content-Type: application/json")
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > ask.BODY_BYTES_MAX:
            raise TooLarge("the statement is too long", expected=f"at most {ask.BODY_BYTES_MAX} bytes")
    try:
        return decode_json(bytes(data), ask.AskRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DefinitionError("not a statement's request", found=str(error)) from error


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what the work returns, or None after cancelling it because the browser has gone away."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """Return when the browser has gone away. The body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _client(on_behalf_of: str = "") -> AsyncQueryClient:
    """Return a client. Airflow's connections are read in a thread: they may come from a database."""
    hook = RtolapHook()
    return await run_in_threadpool(lambda: hook.async_query(on_behalf_of=on_behalf_of))
