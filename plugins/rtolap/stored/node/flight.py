"""The endpoint of a storage node: Arrow Flight with a bearer token. The protocol: `protocols.storage`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Unpack

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.errors import QueryError, Refused
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import BatchStream
from rtolap.servers.flight_server import (
    GuardedFlightServer,
    ServerOptions,
    body_of,
    guarded,
    guarded_batches,
)
from rtolap.servers.limits import FlightLimits
from rtolap.stored.node.loads import Load
from rtolap.stored.node.node import LocalNode

BATCH_OVERHEAD_BYTES_MAX = 16 << 20  # of a batch on its way; one that is a little too large the node refuses


class StorageFlightServer(GuardedFlightServer):
    """Serves as soon as it is made; `port` is the one that it got."""

    def __init__(self, node: LocalNode, **options: Unpack[ServerOptions]) -> None:
        self._node = node
        batch_bytes_max = node.settings.batch_bytes_max + BATCH_OVERHEAD_BYTES_MAX
        limits = options.get("limits", FlightLimits())
        options["limits"] = replace(limits, batch_bytes_max=batch_bytes_max)
        super().__init__(**options)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        def receive() -> None:
            load = self._node.begin(body_of(descriptor.command or b"", wire.PutHead))
            try:
                answer = _take(load, reader)
            finally:
                load.abort("its stream has ended")
            writer.begin(pa.schema([]))
            writer.write_metadata(pa.py_buffer(msgspec.json.encode(answer)))

        guarded(receive)

    def do_get(self, context: Any, ticket: Any) -> Any:
        def open() -> BatchStream:
            request = wire.read_ticket(ticket.ticket)
            if isinstance(request, wire.ScanRequest):
                return self._node.scan(request)
            return self._node.copy(request)

        stream = guarded(open)
        return flight.GeneratorStream(stream.schema, guarded_batches(iter(stream)))

    def list_actions(self, context: Any) -> Any:
        return [
            (name, f"{body.__name__} → {answer.__name__}") for name, (body, answer) in wire.ACTIONS.items()
        ]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        body = action.body.to_pybytes() if action.body is not None else b""
        return iter([flight.Result(guarded(lambda: self._act(action.type, body)))])

    def _act(self, kind: str, body: bytes) -> bytes:
        if kind not in wire.ACTIONS:
            raise QueryError(f"unknown action {kind!r}", expected=", ".join(wire.ACTIONS))
        request = body_of(body, wire.ACTIONS[kind][0])
        if isinstance(request, wire.AskStatus):
            return msgspec.json.encode(self._node.status())
        act: Callable[[Any], msgspec.Struct | None] = getattr(self._node, kind)
        return msgspec.json.encode(act(request) or wire.Done())


def _take(load: Load, reader: Any) -> wire.PutAnswer:
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration as error:
            raise Refused(
                f"the stream of transaction {load.txn_id} ended early", expected="a PutEnd"
            ) from error
        metadata = chunk.app_metadata.to_pybytes() if chunk.app_metadata is not None else b""
        if chunk.data is None:
            return load.finish(body_of(metadata, wire.PutEnd))
        load.add_rows(body_of(metadata, wire.TabletId), chunk.data)
