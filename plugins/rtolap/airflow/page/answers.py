"""How routes of the page answer: as JSON that nobody keeps, and before the person who waits gives up.

Where several services are asked at once, who is away keeps the others waiting no longer than a time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Generic, TypeVar

import msgspec
from fastapi import Response

from rtolap.base.errors import RtolapError

# A person waits, and each request has a thread of the API server meanwhile: the page asks again by itself.
ANSWER_S_MAX = 8.0

_ASKED_AT_ONCE_MAX = 32
TOO_LATE = "it has not answered in time"

T = TypeVar("T")


class Asked(msgspec.Struct, Generic[T], frozen=True):
    """The answer of one of several that were asked.

    Attributes:
        answer: None where there is none.
        error: why there is none; empty where there is one.
    """

    answer: T | None = None
    error: str = ""


def ask_all(asks: Mapping[str, Callable[[], T]], answer_s_max: float) -> dict[str, Asked[T]]:
    """Return what each has answered by then, or why it has not. A call that is late ends by its own time
    limits."""
    asking = ThreadPoolExecutor(max(1, min(_ASKED_AT_ONCE_MAX, len(asks))), thread_name_prefix="page-asks")
    try:
        futures = {name: asking.submit(ask) for name, ask in asks.items()}
        wait(futures.values(), timeout=answer_s_max)
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
    answers: dict[str, Asked[T]] = {}
    for name, future in futures.items():
        if future.cancelled() or not future.done():
            answers[name] = Asked(error=TOO_LATE)
            continue
        try:
            answers[name] = Asked(future.result())
        except RtolapError as error:
            answers[name] = Asked(error=str(error) or type(error).__name__)
    return answers


def json_answer(message: msgspec.Struct) -> Response:
    return Response(
        msgspec.json.encode(message), media_type="application/json", headers={"cache-control": "no-store"}
    )
