"""The receiver's server, which speaks Arrow Flight with a bearer token. `protocols.receiver` has the
protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Unpack

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.errors import QueryError
from rtolap.protocols.receiver.messages import PartialQuery, ReceiverStats
from rtolap.servers.flight_server import GuardedFlightServer, ServerOptions, body_of, guarded


class Desk(Protocol):
    """The interface of the service behind the Flight server."""

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


class ReceiverFlightServer(GuardedFlightServer):
    """Serves as soon as it is made; `port` tells which one it got."""

    def __init__(self, desk: Desk, **options: Unpack[ServerOptions]) -> None:
        self._desk = desk
        super().__init__(**options)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return guarded(
            lambda: flight.RecordBatchStream(self._desk.query(body_of(ticket.ticket, PartialQuery)))
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
        return iter([flight.Result(guarded(lambda: self._act(action.type, body)))])

    def _act(self, kind: str, body: bytes) -> bytes:
        match kind:
            case "stats":
                return msgspec.json.encode(self._desk.stats())
            case "pause" | "resume":
                self._desk.pause(body_of(body, _CubeBody).cube, kind == "pause")
            case "checkpoint":
                self._desk.checkpoint(body_of(body, _CubeBody).cube)
            case "close_segments":
                wanted = body_of(body, _SegmentsBody)
                self._desk.close_segments(wanted.cube, list(wanted.segments))
            case _:
                raise QueryError(
                    f"unknown action {kind!r}", expected="stats, pause, resume, checkpoint, close_segments"
                )
        return b"{}"
