"""The HTTP server: JSON or an Arrow stream. Basic (users file) or Bearer (cluster token).

    POST /api/v1/query   {sql, parameters?, timeout_ms?, database?}  →  {columns, rows, positions, stats,
                         warnings}; the statements of `query.statements`, each in a session of its own
                         Header Rtolap-Session-Token, in both directions: see `query.session_token`
    GET  /api/v1/history-cache[?versions=N]   what of history is on the service's disk
    GET  /metrics        for Prometheus
    GET  /health         without credentials

In JSON decimals with a scale, dates and timestamps are strings, whole numbers are numbers of any length, and
NaN and infinities are strings. `Accept: application/vnd.apache.arrow.stream` gives an Arrow IPC stream whose
schema carries positions as JSON under `rtolap.positions`, and warnings under `rtolap.warnings`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from rtolap.base.errors import QueryError, RtolapError, Unauthorized
from rtolap.base.http_guard import caller_of, guard
from rtolap.base.server_limits import HttpLimits
from rtolap.base.users import Users
from rtolap.protocols.query.messages import (
    HISTORY_CACHE_OFF,
    SESSION_TOKEN_HEADER,
    SESSION_TOKEN_SEPARATOR,
    HistoryCacheReport,
)
from rtolap.query.cancel import Cancellation
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.outcome import Outcome
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor, NoPeers, Peers
from rtolap.query.statements.session import Session

ARROW_STREAM = "application/vnd.apache.arrow.stream"
POSITIONS_KEY = b"rtolap.positions"
WARNINGS_KEY = b"rtolap.warnings"
JSON_ROWS_MAX = 1_000_000  # JSON is built in memory; larger results are for the Arrow stream
JSON_BYTES_MAX = 64 << 20  # of values as Arrow keeps them; as JSON they are several times as large
TIMEOUT_MS_MAX = 86_400_000
THREADS = 32
THREADS_PER_USER = 24  # the requests of one user beyond that wait, and hold no thread meanwhile
BODY_BYTES_MAX = 16 << 20  # as of a statement over the MySQL protocol
GONE_POLL_S = 0.2
CACHED_VERSIONS_MAX = 10_000


class QueryRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str
    parameters: list[Any] | dict[str, Any] = Field(default_factory=list)
    timeout_ms: int | None = Field(default=None, gt=0, le=TIMEOUT_MS_MAX)
    database: str | None = None  # of tables that are named without one


def make_app(
    service: QueryService,
    users: Users,
    token: str,
    limits: HttpLimits,
    peers: Peers = NoPeers(),
    history_cache: Callable[[int], HistoryCacheReport] = lambda versions_max: HISTORY_CACHE_OFF,
) -> FastAPI:
    """`peers`: the connections that SHOW PROCESSLIST lists and KILL ends. `history_cache`: its report with at
    most so many versions."""
    app = FastAPI(title="rtolap query", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="http-query")
    executor = Executor(service, users, peers)
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
    async def query(body: QueryRequest, request: Request) -> Response:
        user = caller_of(request).user
        promised = service.session_tokens.read(
            SESSION_TOKEN_SEPARATOR.join(request.headers.getlist(SESSION_TOKEN_HEADER))
        )
        arrow = ARROW_STREAM in request.headers.get("accept", "")
        loop = asyncio.get_running_loop()
        async with shares[user]:
            cancellation = service.cancellation(body.timeout_ms, user)
            host = request.client.host if request.client else ""
            session = Session(
                *(0, user, host),
                is_kept=False,
                has_token=not user,
                facts=peers.facts(),
                databases=lambda: service.catalogue().databases(),
                tokens=service.session_tokens,
            )
            session.positions.merge(promised)
            work = loop.run_in_executor(pool, _answer, executor, session, body, cancellation, arrow)
            while True:
                done, _ = await asyncio.wait((work,), timeout=GONE_POLL_S)
                if done:
                    break
                if await request.is_disconnected():
                    cancellation.cancel("the client went away")
        answer = work.result()
        token = service.session_tokens.write(session.positions)
        headers = {SESSION_TOKEN_HEADER: token} if token else {}
        if isinstance(answer, Outcome):
            return _ArrowAnswer(answer, pool, headers)
        return Response(answer, media_type="application/json", headers=headers)

    return app


def _answer(
    executor: Executor, session: Session, body: QueryRequest, cancellation: Cancellation, arrow: bool
) -> bytes | Outcome:
    try:
        if body.database is not None:
            session.use(body.database)
        request = classify(plain(body.sql), session.database)
        outcome = executor.execute(request, session, body.parameters, cancellation)
        if not needs_admission(request):
            cancellation.close()
    except BaseException:
        cancellation.close()
        raise
    if arrow:
        return outcome
    try:
        return _json(outcome)
    finally:
        outcome.close()


def _json(outcome: Outcome) -> bytes:
    columns: list[list[Any]] = [[] for _ in outcome.schema]
    rows = size = 0
    for batch in outcome.batches:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > JSON_ROWS_MAX or size > JSON_BYTES_MAX:
            raise QueryError(
                "the result is too large for JSON",
                expected=f"at most {JSON_ROWS_MAX} rows and {JSON_BYTES_MAX} bytes of values",
                action=f"ask with Accept: {ARROW_STREAM}",
            )
        for values, column in zip(columns, batch.columns, strict=True):
            values.extend(_json_values(column))
    return json.dumps(
        {
            "columns": [{"name": field.name, "type": str(field.type)} for field in outcome.schema],
            "rows": list(zip(*columns, strict=True)),
            "positions": outcome.positions,
            "stats": [asdict(stats) for stats in outcome.stats],
            "warnings": msgspec.to_builtins(outcome.warnings),
        },
        ensure_ascii=False,
        default=str,
    ).encode()


def _json_values(column: Any) -> list[Any]:
    if is_duration(column.type):
        return [None if value is None else time_text(value) for value in durations_us(column)]
    return list(map(_json_value, column.to_pylist()))


def _json_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


class _ArrowAnswer(StreamingResponse):
    """Releases the query's admission as soon as reading ends, not when its objects are collected."""

    def __init__(self, outcome: Outcome, pool: ThreadPoolExecutor, headers: Mapping[str, str]) -> None:
        super().__init__(_arrow(outcome), media_type=ARROW_STREAM, headers=headers)
        self._outcome = outcome
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pool.submit(self._outcome.close)


def _arrow(outcome: Outcome) -> Iterator[bytes]:
    """An error in mid-stream breaks the stream off: a reader sees no end mark."""
    sink = io.BytesIO()
    metadata = {
        POSITIONS_KEY: json.dumps(outcome.positions).encode(),
        WARNINGS_KEY: msgspec.json.encode(outcome.warnings),
    }
    try:
        with pa.ipc.new_stream(sink, outcome.schema.with_metadata(metadata)) as writer:
            for batch in outcome.batches:
                writer.write_batch(batch)
                yield sink.getvalue()
                sink.seek(0)
                sink.truncate()
        yield sink.getvalue()
    finally:
        outcome.close()
