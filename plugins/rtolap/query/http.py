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

Bodies are decoded beside the event loop, after their size as objects was reserved. Both kinds of answers are
sent as they are made.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.types import Receive, Scope, Send

from rtolap.base.errors import RtolapError, TooLarge, Unauthorized
from rtolap.base.users import Users
from rtolap.protocols.query.messages import (
    HISTORY_CACHE_OFF,
    SESSION_TOKEN_HEADER,
    SESSION_TOKEN_SEPARATOR,
    HistoryCacheReport,
)
from rtolap.query.cancel import Cancellation
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.engine_choice import EngineWish
from rtolap.query.memory_budget import BODY, RESULT, Account
from rtolap.query.statement_outcome import StatementOutcome, result_pieces
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor, NoOpenConnections, OpenConnections
from rtolap.query.statements.sql_session import SqlSession
from rtolap.servers.http_guard import caller_of, guard
from rtolap.servers.limits import HttpLimits

ARROW_STREAM = "application/vnd.apache.arrow.stream"
POSITIONS_KEY = b"rtolap.positions"
WARNINGS_KEY = b"rtolap.warnings"
JSON_PIECE_BYTES = 128 << 10  # of rows that become JSON at a time
JSON_COPIES = 44  # of these: 4 bytes a character where one is no letter, 6 characters where it is escaped
JSON_TEXT_CHARACTERS = 64 << 10  # of a long text that become JSON at a time
BEGIN_BYTES = 256 << 10  # of an answer are computed before it begins, so that most errors have a status
TIMEOUT_MS_MAX = 86_400_000
THREADS = 32
THREADS_PER_USER = 24  # the requests of one user beyond that wait, and hold no thread meanwhile
BODY_BYTES_MAX = 16 << 20  # as of a statement over the MySQL protocol
BODY_COPIES = 4  # of a body: as it comes, whole, as a text, as texts within it
VALUE_BYTES = 160  # of an object that a mark in JSON makes, with its place in a list
VALUES_MAX = 250_000  # of a body: no other statement goes on while they are made
MARKS_FREE = 10_000  # of a body that is not looked at closer
GONE_POLL_S = 0.2
CACHED_VERSIONS_MAX = 10_000
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class QueryRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str
    parameters: list[Any] | dict[str, Any] = Field(default_factory=list)
    timeout_ms: int | None = Field(default=None, gt=0, le=TIMEOUT_MS_MAX)
    database: str | None = None  # of tables that are named without one
    engine: EngineWish = "auto"  # that reads history


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
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="http-query")
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
        user = caller_of(request).user
        promised = service.session_tokens.read(
            SESSION_TOKEN_SEPARATOR.join(request.headers.getlist(SESSION_TOKEN_HEADER))
        )
        arrow = ARROW_STREAM in request.headers.get("accept", "")
        loop = asyncio.get_running_loop()
        account = service.budget.account(user)
        try:
            data = await _received(request, account)
            host = request.client.host if request.client else ""
            session = SqlSession(
                *(0, user, host),
                is_persistent=False,
                has_token=not user,
                facts=connections.facts(),
                databases=lambda: service.catalogue().databases(),
                account=account,
                tokens=service.session_tokens,
            )
            session.positions.merge(promised)
            async with shares[user]:
                running = _RunningRequest(service, executor, session, data, arrow)
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
        headers = {SESSION_TOKEN_HEADER: token} if token else {}
        media_type = ARROW_STREAM if arrow else "application/json"
        if answer.whole is not None:
            return _Whole(answer, media_type, headers)
        return _Streamed(answer, media_type, pool, headers)

    return app


async def _received(request: Request, account: Account) -> bytes:
    """Return the request's body.

    Raises OverBudget for one that the account has no room for, and RequestValidationError for one that does
    not say that it is JSON: a page elsewhere can have a browser send other kinds, with the user's
    credentials.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise RequestValidationError(
            [{"type": "json_type", "loc": ("body",), "msg": "Content-Type should be application/json"}]
        )
    data = bytearray()
    async for piece in request.stream():
        account.reserve(BODY, BODY_COPIES * (len(data) + len(piece)))
        data += piece
    return bytes(data)


def decoded(data: bytes, account: Account) -> QueryRequest:
    """Return the body as a request. What its values take as objects is reserved before they are made.

    Raises OverBudget, and RequestValidationError for what is no request.
    """
    values = _values_in(data)
    account.reserve(BODY, BODY_COPIES * len(data) + VALUE_BYTES * values)
    if values > VALUES_MAX:
        raise TooLarge(
            "too many values in a request",
            expected=f"at most {VALUES_MAX}",
            action="send fewer parameters, or join with a table",
        )
    try:
        return QueryRequest.model_validate(json.loads(data))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            raise RequestValidationError(error.errors(include_input=False, include_context=False)) from None
        raise RequestValidationError(
            [{"type": "json_invalid", "loc": ("body",), "msg": "JSON decode error"}]
        ) from error


def _values_in(data: bytes) -> int:
    """Return at least as many values as the JSON has, counted no further than VALUES_MAX.

    Marks within texts are no values. They are looked at where there are many, with a step for each text: no
    call keeps the interpreter for long.
    """
    marks = _marks(data)
    if marks <= MARKS_FREE:
        return marks
    count = at = 0
    for text in _TEXT.finditer(data):
        count += 1 + _marks(data[at : text.start()])
        at = text.end()
        if count > VALUES_MAX:
            return count
    return count + _marks(data[at:])


def _marks(data: bytes) -> int:
    """Count the marks before values: each value but the first has one."""
    return sum(map(data.count, (b",", b"[", b"{")))


class _RunningRequest:
    """The statement of one request, from its body to the pieces of its answer. `answer` blocks its thread."""

    def __init__(
        self, service: QueryService, executor: Executor, session: SqlSession, data: bytes, arrow: bool
    ) -> None:
        self._service = service
        self._executor = executor
        self._session = session
        self._data = data
        self._arrow = arrow
        self._lock = threading.Lock()
        self._cancellation: Cancellation | None = None
        self._gone: str | None = None

    def cancel(self, reason: str) -> None:
        with self._lock:
            self._gone = reason
            cancellation = self._cancellation
        if cancellation is not None:
            cancellation.cancel(reason)

    def answer(self) -> _Answer:
        body, self._data = decoded(self._data, self._session.account), b""
        cancellation = self._service.cancellation(body.timeout_ms, self._session.user, body.engine)
        with self._lock:
            self._cancellation = cancellation
            gone = self._gone
        if gone is not None:
            cancellation.cancel(gone)
        try:
            if body.database is not None:
                self._session.use(body.database)
            request = classify(plain(body.sql), self._session.database)
            outcome = self._executor.execute(request, self._session, body.parameters, cancellation)
            if not needs_admission(request):
                cancellation.close()
        except BaseException:
            cancellation.close()
            raise
        pieces = _arrow(outcome) if self._arrow else _json(outcome, self._session.account)
        answer = _Answer(pieces, outcome, self._session.account)
        answer.begin()
        return answer


class _Answer(Iterator[bytes]):
    """The pieces of an answer. An error in mid-stream breaks the answer off: a reader sees no end.

    `begin` makes the first BEGIN_BYTES, so that an error of a small answer is an answer by itself.

    Attributes:
        whole: the answer, where those are all of it; else None. The statement is over then, and what it
            takes counts until `close`.
    """

    def __init__(self, pieces: Iterator[bytes], outcome: StatementOutcome, account: Account) -> None:
        self._begun: deque[bytes] = deque()
        self._pieces = pieces
        self._outcome = outcome
        self._account = account
        self.whole: bytes | None = None

    def begin(self) -> None:
        size = 0
        try:
            for piece in self._pieces:
                self._begun.append(piece)
                size += len(piece)
                if size >= BEGIN_BYTES:
                    return
        except BaseException:
            self.close()
            raise
        self.whole = b"".join(self._begun)
        self._begun.clear()
        self._outcome.close()
        self._account.reserve(RESULT, len(self.whole))

    def __next__(self) -> bytes:
        return self._begun.popleft() if self._begun else next(self._pieces)

    def close(self) -> None:
        """Give back what it holds of the statement; harmless when it was."""
        self._outcome.close()
        self._account.close()


def _json(outcome: StatementOutcome, account: Account) -> Iterator[bytes]:
    head = {
        "columns": [{"name": field.name, "type": str(field.type)} for field in outcome.schema],
    }
    yield _dumped(head).removesuffix(b"}") + b', "rows": ['
    separator = b""
    for batch in outcome.batches:
        pieces = result_pieces(batch, account, piece_bytes=JSON_PIECE_BYTES, copies=JSON_COPIES)
        for piece in pieces:
            rows = list(zip(*map(_json_values, piece.columns), strict=True))
            if piece.num_rows == 1 and piece.nbytes > JSON_PIECE_BYTES:
                yield separator
                yield from _large_row(rows[0])
                separator = b", "
            elif rows:
                yield separator + _dumped(rows)[1:-1]
                separator = b", "
    tail = {
        "positions": outcome.positions,
        "stats": [asdict(stats) for stats in outcome.stats],
        "warnings": msgspec.to_builtins(outcome.warnings),
    }
    yield b"], " + _dumped(tail).removeprefix(b"{")


def _large_row(row: tuple[Any, ...]) -> Iterator[bytes]:
    """Yield the JSON of a row, its texts in parts: escaped, a text is up to six times as long."""
    separator = b"["
    for value in row:
        if not isinstance(value, str):
            yield separator + _dumped(value)
        else:
            yield separator + b'"'
            for at in range(0, len(value), JSON_TEXT_CHARACTERS):
                yield _dumped(value[at : at + JSON_TEXT_CHARACTERS])[1:-1]
            yield b'"'
        separator = b", "
    yield b"]" if row else b"[]"


def _dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode()


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


class _Whole(Response):
    """Counts as its user's until the client has taken it, or is gone."""

    def __init__(self, answer: _Answer, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(answer.whole, media_type=media_type, headers=dict(headers))
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


class _Streamed(StreamingResponse):
    """Releases the query's admission as soon as reading ends, not when its objects are collected."""

    def __init__(
        self, answer: _Answer, media_type: str, pool: ThreadPoolExecutor, headers: Mapping[str, str]
    ) -> None:
        super().__init__(answer, media_type=media_type, headers=headers)
        self._answer = answer
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pool.submit(self._answer.close)


def _arrow(outcome: StatementOutcome) -> Iterator[bytes]:
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
