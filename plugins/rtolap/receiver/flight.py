"""The receiver's door: Arrow Flight with a bearer token. See `wire.receiver` for the protocol."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.errors import QueryError, RtolapError, Unauthorized
from rtolap.wire.receiver import ERROR_MARK, PartialQuery, ReceiverStats

log = logging.getLogger(__name__)

T = TypeVar("T")


class Desk(Protocol):
    """What the door needs of the service behind it."""

    def query(self, query: PartialQuery) -> pa.Table: ...

    def stats(self) -> ReceiverStats: ...

    def pause(self, cube: str, paused: bool) -> None: ...

    def checkpoint(self, cube: str) -> None: ...

    def close_segments(self, cube: str, segments: list[str]) -> None: ...


class _CubeBody(msgspec.Struct, frozen=True):
    cube: str


class _SegmentsBody(msgspec.Struct, frozen=True):
    cube: str
    segments: tuple[str, ...]


def _text(error: RtolapError) -> str:
    return ERROR_MARK + json.dumps(error.to_dict())


class TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses every call without the cluster's token, before anything else is looked at."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str] | list[bytes]]) -> None:
        given = next((v for k, vs in headers.items() if k.lower() == "authorization" for v in vs), "")
        sent = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(sent, self._expected):
            raise flight.FlightUnauthenticatedError(_text(Unauthorized("the token is missing or wrong")))


class ReceiverFlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves as soon as it is made; `port` tells which one it got."""

    def __init__(self, desk: Desk, *, host: str, port: int, token: str) -> None:
        self._desk = desk
        super().__init__(
            f"grpc://{host}:{port}",
            auth_handler=None,
            middleware={"token": TokenFactory(token)},
        )

    def do_get(self, context: Any, ticket: Any) -> Any:
        return _guarded(
            lambda: flight.RecordBatchStream(self._desk.query(_body(ticket.ticket, PartialQuery)))
        )

    def list_actions(self, context: Any) -> Any:
        return [
            ("stats", "{} → ReceiverStats"),
            ("pause", "{cube} → {}"),
            ("resume", "{cube} → {}"),
            ("checkpoint", "{cube} → {}"),
            ("close_segments", "{cube, segments} → {}"),
        ]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        body = action.body.to_pybytes() if action.body is not None else b""
        return iter([flight.Result(_guarded(lambda: self._act(action.type, body)))])

    def _act(self, kind: str, body: bytes) -> bytes:
        match kind:
            case "stats":
                return msgspec.json.encode(self._desk.stats())
            case "pause" | "resume":
                self._desk.pause(_body(body, _CubeBody).cube, kind == "pause")
            case "checkpoint":
                self._desk.checkpoint(_body(body, _CubeBody).cube)
            case "close_segments":
                wanted = _body(body, _SegmentsBody)
                self._desk.close_segments(wanted.cube, list(wanted.segments))
            case _:
                raise QueryError(
                    f"unknown action {kind!r}", expected="stats, pause, resume, checkpoint, close_segments"
                )
        return b"{}"


def _body(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise QueryError(f"the request is not a {kind.__name__.lstrip('_')}", found=str(error)) from error


def _guarded(call: Callable[[], T]) -> T:
    """Errors cross the wire as the JSON that `base.errors.from_dict` reads."""
    try:
        return call()
    except RtolapError as error:
        raise flight.FlightServerError(_text(error)) from error
    except Exception as error:
        log.exception("a request failed")
        raise flight.FlightServerError(_text(RtolapError(f"{type(error).__name__}: {error}"))) from error
