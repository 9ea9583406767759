"""`PUT /api/{db}/{table}/_stream_load`: the request and its body around `loads`.

An endpoint takes the body where it is master and the request came on its port for bodies. Otherwise it
answers 307 to the master's, before it has taken any of the body: a client that sends `Expect: 100-continue`
gets the redirect instead of the 100. Credentials come first, then redirect, headers, a free place; then the
100 and the body.

The answer is JSON with HTTP 200 also for a failed load. 401: wrong credentials. 403: a user without the right
to load. 429: too many loads run. 503: no front end is master at the moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from rtolap.base.errors import NotLeader, RtolapError, TooManyAtOnce, Unavailable
from rtolap.base.users import basic_credentials
from rtolap.protocols.stream_load.messages import LoadAnswer
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.http.authentication import Guard
from rtolap.stored.frontend.loads.body_pipe import BodyPipe
from rtolap.stored.frontend.loads.group_commit import LOAD_BYTES_MAX, GroupCommit
from rtolap.stored.frontend.loads.load import Loads
from rtolap.stored.frontend.loads.load_statistics import LoadMetrics
from rtolap.stored.frontend.loads.request import LoadRequest, check_framing, load_request

log = logging.getLogger(__name__)

# Set by the port: whether a request has come where bodies are taken.
TAKES_BODIES = "rtolap.takes_bodies"

RUNNING_MAX = 64
RUNNING_PER_USER_MAX = 48
RETRY_AFTER_S = 1
_REST_TIMEOUT_S = 10.0  # for what is still under way of a body that nobody reads any more


@dataclass(frozen=True)
class LoadEndpoint:
    loads: Loads
    groups: GroupCommit
    election: Election
    guard: Guard
    metrics: LoadMetrics
    running_max: int = RUNNING_MAX
    running_per_user_max: int = RUNNING_PER_USER_MAX


def load_routes(endpoint: LoadEndpoint) -> APIRouter:
    router = APIRouter()
    pool = ThreadPoolExecutor(endpoint.running_max, thread_name_prefix="load")
    running: Counter[str] = Counter()  # of each user

    @router.put("/api/{db}/{table}/_stream_load")
    @router.put("/api/{db}/{table}/_stream_load/")
    async def stream_load(request: Request, db: str, table: str) -> Response:
        user = endpoint.guard.loader(request)
        if not (request.scope.get(TAKES_BODIES) and endpoint.election.leading):
            return _redirect(request, endpoint.election)
        try:
            headers = _headers(request)
            check_framing(headers)
            wanted = load_request(db, table, headers, user)
            take = endpoint.groups.run if _joins(request, wanted) else endpoint.loads.run
        except RtolapError as error:
            return _answer(_failed(request, error), ends=expects(request))
        if running.total() >= endpoint.running_max:
            endpoint.metrics.refused.inc()
            return _too_many(request, f"too many loads run at this front end: {running.total()}")
        if running[user] >= endpoint.running_per_user_max:
            endpoint.metrics.refused.inc()
            return _too_many(request, f"too many loads of {user} run at this front end: {running[user]}")
        running[user] += 1
        try:
            with endpoint.metrics.running.track_inprogress():
                loop = asyncio.get_running_loop()
                pipe = BodyPipe(loop)
                feeding = asyncio.create_task(_feed(request, pipe))
                try:
                    answer = await loop.run_in_executor(pool, take, wanted, pipe)
                    endpoint.metrics.note(answer)
                    await asyncio.wait({feeding}, timeout=_REST_TIMEOUT_S)
                    whole = feeding.done() and feeding.result()
                finally:
                    feeding.cancel()
                    pipe.fail(
                        Unavailable("the front end shuts down")
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


def _redirect(request: Request, election: Election) -> Response:
    try:
        master = election.master()
    except NotLeader as error:
        response = _answer(_failed(request, error), ends=expects(request))
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response
    ending = {"Connection": "close"} if expects(request) else {}
    return Response(status_code=307, headers={"Location": location(request, master.body_url), **ending})


def _too_many(request: Request, message: str) -> Response:
    answer = LoadAnswer(status="Fail", message=message, code=TooManyAtOnce.code)
    response = _answer(answer, ends=expects(request))
    response.status_code = 429
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def expects(request: Request) -> bool:
    """Return True if the client waits for a 100. If it gets something else, it may send the body or not: it
    cannot be known what comes next on the connection. A client that does not wait sends it, and the server
    throws it away.
    """
    return "expect" in request.headers


def _answer(answer: LoadAnswer, *, ends: bool) -> Response:
    """Return the response. `ends` closes the connection after it."""
    encoded = msgspec.json.format(msgspec.json.encode(answer), indent=4) + b"\n"
    headers = {"Connection": "close"} if ends else {}
    return Response(encoded, media_type="application/json", headers=headers)


def location(request: Request, base_url: str) -> str:
    """Return the address to which a front end that is not master redirects: same path and query, another base
    URL.

    For a request whose credentials have been checked.

    A client of HTTP/1.1 sends its credentials to the other address again, or is set to (`--location-trusted`
    of curl). One of HTTP/1.0 cannot be. Doris' front end writes user and password into the address of every
    redirect; here that is done for HTTP/1.0 only, because addresses are written into logs.
    """
    path = request.scope["raw_path"].decode("ascii")
    query = urlsplit(str(request.url)).query
    return f"{_with_credentials(request, base_url)}{path}{'?' + query if query else ''}"


def _with_credentials(request: Request, base_url: str) -> str:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if request.scope.get("http_version") != "1.0" or scheme.lower() != "basic":
        return base_url
    name, password = (quote(each, safe="") for each in basic_credentials(value.strip()))
    kind, _, host_and_path = base_url.partition("://")
    return f"{kind}://{name}:{password}@{host_and_path}"
