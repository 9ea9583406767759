"""The guard before every HTTP application: credentials, sizes and turns, before a byte of a body is read.

    1. the path is among the open ones, or the head has right credentials            else 401
    2. there is a turn: `requests_max` in all, `requests_per_user_max` for one       else 503
    3. the announced body is within the route's bound                                else 413
    4. the body comes: counted, cut off at the bound (413), and not too slowly (408)

A refused request's body is not taken in: the connection ends, after a little of it was thrown away so that
the client reads the answer. Heads and connections are bounded below this: `http_protocol`, `http_server`.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rtolap.base.errors import (
    DefinitionError,
    RtolapError,
    SessionOffered,
    TooLarge,
    TooSlow,
    Unauthorized,
    Unavailable,
)
from rtolap.base.ids import HEADER, bound, ids, new_id, note, received
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ANSWER_HEADER, CALL, HELLO, ServerSessions
from rtolap.base.spans import named, served
from rtolap.base.users import Users, basic_credentials
from rtolap.servers.limits import HttpLimits
from rtolap.servers.metrics_http import serve_metrics

HEALTH = frozenset({"/health"})
BODY_BYTES_MAX = 8 << 20
RETRY_AFTER_S = 1
DRAIN_BYTES_MAX = 1 << 20
DRAIN_S = 2.0
PROBLEMS_MAX = 20  # that the answer names of one request

_CALLER = "rtolap.caller"
_PATH = re.compile(
    r"/cubes/(?P<cube>[^/]+)(?:/segments/(?P<segment>[^/]+))?"
    r"(?:/builds/(?P<build>[^/]+)|/merges/(?P<merge>[^/]+)|/batches/(?P<batch>[^/]+))?"
    r"|/api/v1/processes/(?P<process>[^/]+)"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """`user` is empty for who has the cluster's token."""

    user: str = ""


Answer = Callable[[Request, RtolapError], Response]
BodyBound = Callable[[str], int | None]  # path → bytes; None: the route bounds its bodies itself


def caller_of(request: Request) -> Caller:
    """Return the caller whom the guard has let in. Raises Unauthorized on an open path."""
    caller = request.scope.get(_CALLER)
    if not isinstance(caller, Caller):
        raise Unauthorized("credentials are missing")
    return caller


def json_answer(request: Request, error: RtolapError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    return JSONResponse(error.to_dict(), error.http_status, headers=headers)


def guard(
    app: FastAPI,
    metrics: Metrics,
    token: str,
    *,
    users: Users | None = None,
    open_paths: Collection[str] = HEALTH,
    body_bytes_max: BodyBound = lambda path: BODY_BYTES_MAX,
    answer: Answer = json_answer,
    limits: HttpLimits,
    sessions: ServerSessions | None = None,
) -> None:
    """Guard all of `app`, count its requests and serve `/metrics`; before it serves.

    Everybody has to have the cluster's token, or a password where there are `users`; what a route asks beyond
    that it finds in `caller_of`. A request that is not what its route takes is answered as a DefinitionError,
    which says where it is wrong, and never repeats its values: no answer may be built of any bytes.

    `sessions`: with services that found the address in ZooKeeper. They prove that they know the token instead
    of sending it, and every answer to them proves that the server does.
    """

    async def malformed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:PROBLEMS_MAX]
        ]
        what = f"{request.method} {request.url.path} is malformed"
        return answer(request, DefinitionError(what, found="; ".join(problems)))

    app.add_exception_handler(RequestValidationError, malformed)
    app.add_middleware(
        HttpGuard,
        credentials=_Credentials(token, users, sessions),
        open_paths=frozenset(open_paths),
        body_bytes_max=body_bytes_max,
        answer=answer,
        limits=limits,
    )
    serve_metrics(app, metrics)  # its counting goes around the guard, so that the refused count too


class HttpGuard:
    """ASGI middleware; for one event loop."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        credentials: _Credentials,
        open_paths: frozenset[str],
        body_bytes_max: BodyBound,
        answer: Answer,
        limits: HttpLimits,
    ) -> None:
        self._app = app
        self._credentials = credentials
        self._open_paths = open_paths
        self._body_bytes_max = body_bytes_max
        self._answer = answer
        self._limits = limits
        self._running: Counter[Caller | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        bytes_max = self._body_bytes_max(scope["path"])
        caller: Caller | None = None
        try:
            if scope["path"] not in self._open_paths:
                caller = scope[_CALLER] = await self._credentials.verify(request)
                send = self._credentials.proving(request, send)
            self._check_turn(caller)
            _check_length(request, bytes_max)
        except RtolapError as error:
            await _refuse(request, self._answer(request, error), receive, send)
            return
        self._running[caller] += 1
        try:
            with bound(received(request.headers.get(HEADER, "")), **_of_path(scope["path"])):
                await self._served(request, bytes_max, receive, send)
        finally:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]

    async def _served(self, request: Request, bytes_max: int | None, receive: Receive, send: Send) -> None:
        """Run the request under its ids, which its own log lines and all that it causes have."""
        if "request" not in ids():
            note(request=new_id())
        began_s = time.perf_counter()
        with served(request.method, request.headers.get) as opened:
            try:
                await self._run(request, bytes_max, receive, send)
            finally:
                route = getattr(request.scope.get("route"), "path", "")
                named(opened, f"{request.method} {route}".rstrip())
                if log.isEnabledFor(logging.DEBUG):
                    took_ms = (time.perf_counter() - began_s) * 1000
                    log.debug("%s %s took %.1f ms", request.method, route or "of no route", took_ms)

    def _check_turn(self, caller: Caller | None) -> None:
        limits = self._limits
        if self._running[caller] >= limits.requests_per_user_max:
            bound = f"at most {limits.requests_per_user_max} of one user at a time"
        elif self._running.total() >= limits.requests_max:
            bound = f"at most {limits.requests_max} at a time"
        else:
            return
        raise Unavailable("too many requests", expected=bound, action="ask again later")

    async def _run(self, request: Request, bytes_max: int | None, receive: Receive, send: Send) -> None:
        body = _Body(receive, bytes_max, self._limits)
        started = False

        async def answered(message: Message) -> None:
            nonlocal started
            if body.error is not None and not started:
                return  # what the application makes of a body that was cut off
            started = True
            await send(message)

        try:
            await self._app(request.scope, body.receive, answered)
        except ClientDisconnect:  # in the middle of its body: there is nobody to answer
            return
        except Exception:
            if body.error is None or started:
                raise
        if body.error is not None and not started:
            await _refuse(request, self._answer(request, body.error), receive, send)


class _Body:
    """The received part of a body. `error`: why it was cut off."""

    def __init__(self, receive: Receive, bytes_max: int | None, limits: HttpLimits) -> None:
        self.error: RtolapError | None = None
        self._receive = receive
        self._bytes_max = bytes_max
        self._limits = limits
        self._bytes = 0
        self._waited_s = 0.0
        self._over = False

    async def receive(self) -> Message:
        """Receive a message. Raises TooLarge and TooSlow, which the guard answers unless the application
        does."""
        if self._over:
            return await self._receive()
        if self.error is not None:
            raise self.error
        limits = self._limits
        left_s = limits.body_grace_s + self._bytes / limits.body_bytes_per_s_min - self._waited_s
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(left_s):
                message = await self._receive()
        except TimeoutError:
            self.error = TooSlow(
                "the body did not come in time",
                expected=f"{limits.body_bytes_per_s_min} bytes a second after {limits.body_grace_s:g} s",
                found=f"{self._bytes} bytes",
                action="send it faster",
            )
            raise self.error from None
        self._waited_s += time.monotonic() - began_s
        self._over = message["type"] != "http.request" or not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes_max is not None and self._bytes > self._bytes_max:
            self.error = _too_large(self._bytes_max, f"more than {self._bytes_max}")
            raise self.error
        return message


class _Credentials:
    def __init__(self, token: str, users: Users | None, sessions: ServerSessions | None = None) -> None:
        self._token = token.encode()
        self._sessions = sessions
        self._users = users

    async def verify(self, request: Request) -> Caller:
        """Verify the credentials. Raises Unauthorized, and TooManyAtOnce for a password beside too many wrong
        ones."""
        sent = request.headers.get("authorization", "").encode("latin-1")
        if self._sessions is not None and sent.startswith(HELLO):
            raise SessionOffered(self._sessions.offer(sent))
        if self._sessions is not None and sent.startswith(CALL):
            self._sessions.admit(sent)
            return Caller()
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        scheme, value = scheme.lower(), value.strip()
        if scheme == "bearer":
            if hmac.compare_digest(value.encode(), self._token):
                return Caller()
            raise Unauthorized("the bearer token is missing or wrong", action="send the cluster's token")
        if self._users is None:
            raise Unauthorized("the bearer token is missing or wrong", action="send the cluster's token")
        if scheme != "basic":
            raise Unauthorized("credentials are missing or wrong", expected="Basic or Bearer authorization")
        name, password = basic_credentials(value)
        address = request.client.host if request.client is not None else ""
        verify = functools.partial(self._users.verify_password, name, password)
        attempt = self._users.delays.attempt(name, address, verify)
        while wait_s := attempt.advance():
            await asyncio.sleep(wait_s)
        return Caller(name)

    def proving(self, request: Request, send: Send) -> Send:
        """Return `send`, so that the answer to a call of a session shows the server's proof."""
        sent = request.headers.get("authorization", "").encode("latin-1")
        if self._sessions is None or not sent.startswith(CALL):
            return send
        proof = (ANSWER_HEADER.encode(), self._sessions.answer(sent).encode())

        async def proven(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), proof]}
            await send(message)

        return proven


def _of_path(path: str) -> dict[str, str]:
    """Return what a path names: the cube, the segment, a piece of work on it; a process of the agent."""
    found = _PATH.search(path)
    return {} if found is None else {name: value for name, value in found.groupdict().items() if value}


def _check_length(request: Request, bytes_max: int | None) -> None:
    length = request.headers.get("content-length", "")
    if bytes_max is None or not (length.isascii() and length.isdecimal()):
        return
    if len(length) > 18 or int(length) > bytes_max:
        raise _too_large(bytes_max, length[:40])


def _too_large(bytes_max: int, found: str) -> TooLarge:
    return TooLarge("the body is too large", expected=f"at most {bytes_max} bytes", found=found)


async def _refuse(request: Request, response: Response, receive: Receive, send: Send) -> None:
    """Answer at once. A little of a body that comes all the same is thrown away: a connection that ends with
    bytes unread takes the answer along that the client has not read yet."""
    if response.status_code == Unavailable.http_status:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        await response(request.scope, receive, send)
        return
    response.headers["Connection"] = "close"
    await send(
        {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    if "expect" not in headers:
        await _throw_away(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _throw_away(receive: Receive) -> None:
    left_bytes = DRAIN_BYTES_MAX
    try:
        async with asyncio.timeout(DRAIN_S):
            while left_bytes > 0:
                message = await receive()
                left_bytes -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
