"""Bodies of requests: read within the account's memory, and decoded into a request."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rtolap.base.errors import TooLarge
from rtolap.query.engine_choice import EngineWish
from rtolap.query.memory_budget import BODY, Account

TIMEOUT_MS_MAX = 86_400_000
BODY_COPIES = 4  # of a body: as it comes, whole, as a text, as texts within it
VALUE_BYTES = 160  # of an object that a mark in JSON makes, with its place in a list
VALUES_MAX = 250_000  # of a body: no other statement goes on while they are made
MARKS_FREE = 10_000  # of a body that is not looked at closer
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class QueryRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str
    parameters: list[Any] | dict[str, Any] = Field(default_factory=list)
    timeout_ms: int | None = Field(default=None, gt=0, le=TIMEOUT_MS_MAX)
    database: str | None = None  # of tables that are named without one
    engine: EngineWish = "auto"  # that reads history
    rows_max: int | None = Field(default=None, gt=0)  # of the answer; further rows are not computed


async def received(request: Request, account: Account) -> bytes:
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
    """Return the body as a request. The memory of its values is reserved before they are made. Raises
    OverBudget, and RequestValidationError for any other content.
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
