"""`PUT /api/{db}/{table}/_stream_load`: the request and its body, in a front end and in a storage node.

A request that came on a port for bodies is taken. On the other port of a front end it is answered 307 to a
port for bodies, before any of the body is taken: a client that sends `Expect: 100-continue` gets the redirect
instead of the 100. Credentials come first, then redirect, headers, a free place; then the 100 and the body.

The answer is JSON with HTTP 200 also for a failed load. 401: wrong credentials. 403: a user without the right
to load. 429: too many loads run in this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from rtolap.base.errors import RtolapError, TooManyAtOnce, Unavailable
from rtolap.base.ids import CarryingPool, note
from rtolap.base.metrics import Metrics
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.bodies.settings import BodySettings
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.body_pipe import BodyPipe
from rtolap.stored.stream_load.committing import PUBLISH_TIMEOUT_S, Committing
from rtolap.stored.stream_load.decision_client import RETRY_S
from rtolap.stored.stream_load.decisions import LoadDecisions
from rtolap.stored.stream_load.distribution import OpenWriter, Tables
from rtolap.stored.stream_load.error_files import ErrorFiles
from rtolap.stored.stream_load.group_commit import INTERVAL_S, LOAD_BYTES_MAX, GroupCommit
from rtolap.stored.stream_load.load import Loads, LoadServices
from rtolap.stored.stream_load.load_statistics import LoadMetrics
from rtolap.stored.stream_load.request import LoadRequest, check_framing, load_request
from rtolap.stored.stream_load.responses import expects, redirect

log = logging.getLogger(__name__)

# Set by the port: whether a request has come where bodies are taken.
TAKES_BODIES = "rtolap.takes_bodies"

RUNNING_MAX = 64
RUNNING_PER_USER_MAX = 48
RETRY_AFTER_S = 1
_REST_TIMEOUT_S = 10.0  # for what is still under way of a body that nobody reads any more


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the loads of one process.

    Attributes:
        loads_max: the most loads at a time, in this process.
        election_wait_s: how long a load waits for a master.
    """

    loads_max: int = RUNNING_MAX
    loads_per_user_max: int = RUNNING_PER_USER_MAX
    publish_timeout_s: float = PUBLISH_TIMEOUT_S
    group_interval_s: float = INTERVAL_S
    election_wait_s: float = RETRY_S
    bodies: BodySettings = BodySettings()


def load_routes(
    decisions: LoadDecisions,
    open_writer: OpenWriter,
    error_files: ErrorFiles,
    body_url: Callable[[], str],
    guard: Guard,
    process_metrics: Metrics,
    settings: LoadSettings,
) -> APIRouter:
    """Return the routes. `body_url` returns the base URL to which a request goes on that has come on a port
    without bodies."""
    committing = Committing(decisions, decisions, settings.publish_timeout_s)
    services = LoadServices(committing, Tables(decisions, open_writer), error_files, settings.bodies)
    loads, groups = Loads(services), GroupCommit(services, interval_s=settings.group_interval_s)
    metrics = LoadMetrics(process_metrics)
    router = APIRouter()
    pool = CarryingPool(settings.loads_max, thread_name_prefix="load")
    running: Counter[str] = Counter()  # of each user

    @router.put("/api/{db}/{table}/_stream_load")
    @router.put("/api/{db}/{table}/_stream_load/")
    async def stream_load(request: Request, db: str, table: str) -> Response:
        user = guard.loader(request)
        if not request.scope.get(TAKES_BODIES):
            return redirect(request, await run_in_threadpool(body_url))
        try:
            headers = _headers(request)
            check_framing(headers)
            wanted = load_request(db, table, headers, user)
            note(load=wanted.label)
            take = groups.run if _joins(request, wanted) else loads.run
        except RtolapError as error:
            return _answer(_failed(request, error), ends=expects(request))
        if running.total() >= settings.loads_max:
            metrics.refused.inc()
            return _too_many(request, f"too many loads run in this process: {running.total()}")
        if running[user] >= settings.loads_per_user_max:
            metrics.refused.inc()
            return _too_many(request, f"too many loads of {user} run in this process: {running[user]}")
        running[user] += 1
        try:
            with metrics.running.track_inprogress():
                loop = asyncio.get_running_loop()
                pipe = BodyPipe(loop)
                feeding = asyncio.create_task(_feed(request, pipe))
                try:
                    answer = await loop.run_in_executor(pool, take, wanted, pipe)
                    metrics.note(answer)
                    await asyncio.wait({feeding}, timeout=_REST_TIMEOUT_S)
                    whole = feeding.done() and feeding.result()
                finally:
                    feeding.cancel()
                    pipe.fail(
                        Unavailable("the process shuts down")
                    )  # its thread may still be waiting for more
                return _answer(answer, ends=not whole)
        finally:
            running[user] -= 1

    return router


def _headers(request: Request) -> dict[str, str]:
    """Return the headers by lower-case name. Clients send names of columns and conditions in UTF-8."""
    return {name.decode("latin-1"): _text(value) for name, value in request.headers.raw}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _joins(request: Request, wanted: LoadRequest) -> bool:
    """Return True if a load shares a transaction with others: it wants to, and is known to be small."""
    length = request.headers.get("content-length", "")
    small = length.isascii() and length.isdecimal() and len(length) < 10 and int(length) <= LOAD_BYTES_MAX
    return wanted.group_commit != "off_mode" and small


async def _feed(request: Request, pipe: BodyPipe) -> bool:
    """Feed everything that comes into the pipe, or drop it once the pipe is closed; return whether the body
    came whole."""
    try:
        async for chunk in request.stream():
            if chunk:
                await pipe.put(chunk)
    except ClientDisconnect:
        pipe.fail(
            Unavailable("the client went away before the whole body had come", found=pipe.received_bytes)
        )
        return False
    except RtolapError as error:  # the guard has cut it off, and answers
        pipe.fail(error)
        return False
    pipe.end()
    return True


def _failed(request: Request, error: RtolapError) -> LoadAnswer:
    """Return the answer to a request that failed before a load began."""
    label = request.headers.get("label", "")
    return LoadAnswer(label=label, status="Fail", message=str(error), code=error.code)


def _too_many(request: Request, message: str) -> Response:
    answer = LoadAnswer(status="Fail", message=message, code=TooManyAtOnce.code)
    response = _answer(answer, ends=expects(request))
    response.status_code = 429
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _answer(answer: LoadAnswer, *, ends: bool) -> Response:
    """Return the response. `ends` closes the connection after it."""
    encoded = msgspec.json.format(msgspec.json.encode(answer), indent=4) + b"\n"
    headers = {"Connection": "close"} if ends else {}
    return Response(encoded, media_type="application/json", headers=headers)
