"""Answers over HTTP: JSON or an Arrow stream, made in pieces as they are sent."""

from __future__ import annotations

import base64
import io
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rtolap.base.ids import CarryingPool
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.memory_budget import RESULT, Account
from rtolap.query.statement_outcome import StatementOutcome, result_pieces

POSITIONS_KEY = b"rtolap.positions"
WARNINGS_KEY = b"rtolap.warnings"
JSON_PIECE_BYTES = 128 << 10  # of rows that become JSON at a time
JSON_COPIES = 44  # of these: 4 bytes a character where one is no letter, 6 characters where it is escaped
JSON_TEXT_CHARACTERS = 64 << 10  # of a long text that become JSON at a time
BEGIN_BYTES = 256 << 10  # of an answer are computed before it begins, so that most errors have a status


class Answer(Iterator[bytes]):
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


class WholeAnswer(Response):
    """Counts as its user's until the client has taken it, or is gone."""

    def __init__(self, answer: Answer, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(answer.whole, media_type=media_type, headers=dict(headers))
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


class StreamedAnswer(StreamingResponse):
    """Releases the query's admission as soon as reading ends, not when its objects are collected."""

    def __init__(
        self, answer: Answer, media_type: str, pool: CarryingPool, headers: Mapping[str, str]
    ) -> None:
        super().__init__(answer, media_type=media_type, headers=headers)
        self._answer = answer
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pool.submit(self._answer.close)


def json_pieces(outcome: StatementOutcome, account: Account) -> Iterator[bytes]:
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


def arrow_pieces(outcome: StatementOutcome) -> Iterator[bytes]:
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
