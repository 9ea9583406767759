"""Common behaviour of the product's Flight endpoints: the cluster's token, named errors, and the shutdown."""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pyarrow.flight as flight

from rtolap.base.errors import QueryError, RtolapError, Unauthorized
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.receiver.messages import ERROR_MARK

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_S = 10.0


class TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses every call without the cluster's token, before anything else is looked at."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str] | list[bytes]]) -> None:
        given = next((v for k, vs in headers.items() if k.lower() == "authorization" for v in vs), "")
        sent = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(sent, self._expected):
            raise flight.FlightUnauthenticatedError(error_text(Unauthorized("the token is missing or wrong")))


def shut_down(server: flight.FlightServerBase, within_s: float = DRAIN_S) -> bool:
    """Take no call any more, and wait for those under way. False when some are still open then.

    Arrow breaks no call off, and its server waits for the last one at the interpreter's end too: a process
    for which this is False has to end without that (`cli.serving.end_now`).
    """
    waiting = threading.Thread(target=server.shutdown, name="flight-shutdown", daemon=True)
    waiting.start()
    waiting.join(within_s)
    if waiting.is_alive():
        log.warning("calls that are still open after %g s are given up", within_s)
    return not waiting.is_alive()


def body_of(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        kind_name = getattr(kind, "__name__", str(kind)).lstrip("_")
        raise QueryError(f"the request is not a {kind_name}", found=str(error)) from error


def guarded(call: Callable[[], T]) -> T:
    """Errors cross the wire as the JSON that `base.errors.from_dict` reads."""
    try:
        return call()
    except RtolapError as error:
        raise flight.FlightServerError(error_text(error)) from error
    except Exception as error:
        log.exception("a request failed")
        raise flight.FlightServerError(error_text(RtolapError(f"{type(error).__name__}: {error}"))) from error


def guarded_batches(batches: Iterator[T]) -> Iterator[T]:
    """The same, for what is computed while it is sent."""
    while True:
        try:
            batch = guarded(lambda: next(batches, None))
        except BaseException:
            getattr(batches, "close", lambda: None)()
            raise
        if batch is None:
            return
        yield batch


def error_text(error: RtolapError) -> str:
    """An error as `flight_errors.named` reads it."""
    return ERROR_MARK + json.dumps(error.to_dict())
