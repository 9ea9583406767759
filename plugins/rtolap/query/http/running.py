"""Running requests: a statement from its body to the pieces of its answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from rtolap.query.cancel import Cancellation
from rtolap.query.http.answers import Answer, arrow_pieces, json_pieces
from rtolap.query.http.first_rows import FirstRows
from rtolap.query.http.request_body import decoded
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.classify import classify, needs_admission, plain
from rtolap.query.statements.executor import Executor
from rtolap.query.statements.sql_session import SqlSession


@dataclass(eq=False)
class RunningRequest:
    """The statement of one request, from its body to the pieces of its answer. `answer` blocks its thread."""

    service: QueryService
    executor: Executor
    session: SqlSession
    data: bytes
    arrow: bool
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _cancellation: Cancellation | None = field(default=None, init=False)
    _gone: str | None = field(default=None, init=False)

    def cancel(self, reason: str) -> None:
        with self._lock:
            self._gone = reason
            cancellation = self._cancellation
        if cancellation is not None:
            cancellation.cancel(reason)

    def answer(self) -> Answer:
        body, self.data = decoded(self.data, self.session.account), b""
        cancellation = self.service.cancellation(body.timeout_ms, self.session.user, body.engine, "http")
        with self._lock:
            self._cancellation = cancellation
            gone = self._gone
        if gone is not None:
            cancellation.cancel(gone)
        try:
            if body.database is not None:
                self.session.use(body.database)
            request = classify(plain(body.sql), self.session.database)
            outcome = self.executor.execute(request, self.session, body.parameters, cancellation)
            if not needs_admission(request):
                cancellation.close()
        except BaseException:
            cancellation.close()
            raise
        if body.rows_max is not None:
            outcome = replace(outcome, batches=FirstRows(outcome.batches, body.rows_max))
        pieces = arrow_pieces(outcome) if self.arrow else json_pieces(outcome, self.session.account)
        answer = Answer(pieces, outcome, self.session.account)
        answer.begin()
        return answer
