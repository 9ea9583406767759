"""Running requests: a statement from its body to the pieces of its answer."""

from __future__ import annotations

import threading
from dataclasses import replace

from rtolap.query.cancel import Cancellation
from rtolap.query.http.answers import Answer, arrow_pieces, json_pieces
from rtolap.query.http.first_rows import FirstRows
from rtolap.query.http.request_body import decoded
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor
from rtolap.query.statements.sql_session import SqlSession


class RunningRequest:
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

    def answer(self) -> Answer:
        body, self._data = decoded(self._data, self._session.account), b""
        cancellation = self._service.cancellation(body.timeout_ms, self._session.user, body.engine, "http")
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
        if body.rows_max is not None:
            outcome = replace(outcome, batches=FirstRows(outcome.batches, body.rows_max))
        pieces = arrow_pieces(outcome) if self._arrow else json_pieces(outcome, self._session.account)
        answer = Answer(pieces, outcome, self._session.account)
        answer.begin()
        return answer
