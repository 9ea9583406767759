"""The routes of the HTTP server, and how its threads are shared by users."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from rtolap.base.errors import RtolapError, Unauthorized
from rtolap.base.ids import CarryingPool, new_id, note
from rtolap.base.users import Users
from rtolap.protocols.query.messages import (
    ARROW_STREAM,
    HISTORY_CACHE_OFF,
    ON_BEHALF_HEADER,
    SESSION_TOKEN_HEADER,
    SESSION_TOKEN_SEPARATOR,
    STATEMENT_HEADER,
    HistoryCacheReport,
)
from rtolap.query.http.answers import StreamedAnswer, WholeAnswer
from rtolap.query.http.asking_user import asking_user
from rtolap.query.http.request_body import received
from rtolap.query.http.running import RunningRequest
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.executor import Executor, NoOpenConnections, OpenConnections
from rtolap.query.statements.sql_session import SqlSession
from rtolap.servers.http_guard import caller_of, guard
from rtolap.servers.limits import HttpLimits

THREADS = 32
THREADS_PER_USER = 24  # the requests of one user beyond that wait, and hold no thread meanwhile
BODY_BYTES_MAX = 16 << 20  # as of a statement over the MySQL protocol
GONE_POLL_S = 0.2
CACHED_VERSIONS_MAX = 10_000


def make_app(
    service: QueryService,
    users: Users,
    token: str,
    limits: HttpLimits,
    connections: OpenConnections = NoOpenConnections(),
    history_cache: Callable[[int], HistoryCacheReport] = lambda versions_max: HISTORY_CACHE_OFF,
) -> FastAPI:
    """Create the query service's HTTP server.

    Args:
        connections: the connections that SHOW PROCESSLIST lists and KILL ends.
        history_cache: returns the report of the history cache with at most that many versions.
    """
    app = FastAPI(title="rtolap query", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    pool = CarryingPool(THREADS, thread_name_prefix="http-query")
    executor = Executor(service, users, connections)
    shares: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(THREADS_PER_USER))

    def named(request: Request, error: RtolapError) -> JSONResponse:
        headers = {"WWW-Authenticate": 'Basic realm="rtolap"'} if isinstance(error, Unauthorized) else None
        return JSONResponse(error.to_dict(), error.http_status, headers=headers)

    @app.exception_handler(RtolapError)
    async def failed(request: Request, error: RtolapError) -> JSONResponse:
        return named(request, error)

    guard(
        app,
        service.metrics.registry,
        token,
        users=users,
        body_bytes_max=lambda path: BODY_BYTES_MAX,
        answer=named,
        limits=limits,
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "role": "query"}

    @app.get("/api/v1/history-cache")
    def cache(versions: Annotated[int, Query(ge=0, le=CACHED_VERSIONS_MAX)] = 100) -> Response:
        return Response(msgspec.json.encode(history_cache(versions)), media_type="application/json")

    @app.post("/api/v1/query", response_model=None)
    async def query(request: Request) -> Response:
        user = asking_user(caller_of(request).user, request.headers.get(ON_BEHALF_HEADER, ""))
        statement = new_id()
        note(statement=statement)
        promised = service.session_tokens.read(
            SESSION_TOKEN_SEPARATOR.join(request.headers.getlist(SESSION_TOKEN_HEADER))
        )
        arrow = ARROW_STREAM in request.headers.get("accept", "")
        loop = asyncio.get_running_loop()
        account = service.budget.account(user)
        try:
            data = await received(request, account)
            host = request.client.host if request.client else ""
            session = SqlSession(
                *(0, user, host),
                is_persistent=False,
                has_token=not user,
                facts=connections.facts(),
                databases=service.databases,
                account=account,
                tokens=service.session_tokens,
            )
            session.positions.merge(promised)
            async with shares[user]:
                running = RunningRequest(service, executor, session, data, arrow)
                del data
                work = loop.run_in_executor(pool, running.answer)
                while True:
                    done, _ = await asyncio.wait((work,), timeout=GONE_POLL_S)
                    if done:
                        break
                    if await request.is_disconnected():
                        running.cancel("the client went away")
            answer = work.result()
        except BaseException:
            account.close()
            raise
        token = service.session_tokens.write(session.positions)
        headers = {STATEMENT_HEADER: statement, **({SESSION_TOKEN_HEADER: token} if token else {})}
        media_type = ARROW_STREAM if arrow else "application/json"
        if answer.whole is not None:
            return WholeAnswer(answer, media_type, headers)
        return StreamedAnswer(answer, media_type, pool, headers)

    return app
