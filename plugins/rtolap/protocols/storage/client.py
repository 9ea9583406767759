"""Arrow Flight client of a storage node. See `messages`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.protocols.flight.channel import FAILURES, FlightChannel, Headers
from rtolap.protocols.flight.client import FlightClients, named, next_batch
from rtolap.protocols.storage import messages as wire

T = TypeVar("T")
M = TypeVar("M", bound=msgspec.Struct)
ACTION_TIMEOUT_S = 20.0


class RowStream(Protocol):
    """Rows of one transaction on their way to one node. For one thread, but for `cancel`.

    Raises what the node names; Unavailable when it does not answer.
    """

    def write(self, tablet: wire.TabletId, batch: pa.RecordBatch) -> None:
        """Write a batch. It blocks while the node takes nothing. All batches of a stream have the same
        columns."""
        ...

    def finish(self, end: wire.PutEnd) -> wire.PutAnswer:
        """Finish. The node has made everything durable, and nothing can be written afterwards."""
        ...

    def cancel(self) -> None:
        """Give it up, from any thread; the node forgets what has come. Harmless afterwards."""
        ...


class BatchStream(Protocol):
    """A stream of the batches that are read, with their schema. `cancel` from any thread."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def cancel(self) -> None: ...


class StorageNode(Protocol):
    """A storage node as others see it; thread-safe. `StorageClient`, or a node in the same process.

    Raises Unavailable when it cannot be reached or does not answer in time, Unauthorized for a wrong token,
    and whatever error of the tree the node names.
    """

    def put(self, head: wire.PutHead, columns: pa.Schema) -> RowStream: ...

    def scan(self, request: wire.ScanRequest) -> BatchStream: ...

    def pin(self, request: wire.Pin) -> wire.TabletsDone: ...

    def unpin(self, request: wire.Unpin) -> None: ...

    def copy(self, request: wire.CopyRequest) -> BatchStream: ...

    def create(self, request: wire.CreateTablets) -> None: ...

    def drop(self, request: wire.DropTablets) -> None: ...

    def change_schema(self, request: wire.ChangeSchema) -> None: ...

    def prepare(self, request: wire.Prepare) -> wire.TabletsDone: ...

    def publish(self, request: wire.Publish) -> wire.TabletsDone: ...

    def catch_up(self, request: wire.CatchUp) -> wire.Reached: ...

    def abort(self, request: wire.Abort) -> None: ...

    def status(self) -> wire.NodeStatus: ...

    def ping(self, within_s: float) -> None:
        """Raise Unavailable when it does not answer even this in time."""
        ...


class StorageClient(Closeable):
    """A `StorageNode` by its `address` (host:port); connects on the first call. `ca`: PEM of an authority."""

    def __init__(self, address: str, token: str, *, ca: bytes | None = None) -> None:
        self.address = address
        self._peer = f"storage node {address}"
        self._channel = FlightChannel(self._peer, address, token, ca=ca)

    def put(self, head: wire.PutHead, columns: pa.Schema) -> _Put:
        """Send rows to a node. The node proves itself in an exchange before any row leaves, since rows go
        before an answer comes."""
        descriptor = flight.FlightDescriptor.for_command(msgspec.json.encode(head))
        self._channel.answers(ACTION_TIMEOUT_S)

        def begin(headers: Headers) -> tuple[Any, Any]:
            options = flight.FlightCallOptions(headers=headers)
            writer, reader = self._channel.client.do_exchange(descriptor, options)
            writer.begin(columns)
            return writer, reader

        (writer, reader), check = self._channel.begin("take rows", begin)
        return _Put(self._peer, columns, writer, reader, check)

    def scan(self, request: wire.ScanRequest, timeout_s: float | None = None) -> BatchStream:
        """Scan a tablet. `timeout_s` is for all of its rows."""
        return self._get("scan", request, timeout_s)

    def pin(self, request: wire.Pin) -> wire.TabletsDone:
        return self._act("pin", request, wire.TabletsDone)

    def unpin(self, request: wire.Unpin) -> None:
        self._act("unpin", request, wire.Done)

    def copy(self, request: wire.CopyRequest) -> BatchStream:
        return self._get("copy", request, None)

    def create(self, request: wire.CreateTablets) -> None:
        self._act("create", request, wire.Done)

    def drop(self, request: wire.DropTablets) -> None:
        self._act("drop", request, wire.Done)

    def change_schema(self, request: wire.ChangeSchema) -> None:
        self._act("change_schema", request, wire.Done)

    def prepare(self, request: wire.Prepare) -> wire.TabletsDone:
        return self._act("prepare", request, wire.TabletsDone)

    def publish(self, request: wire.Publish) -> wire.TabletsDone:
        return self._act("publish", request, wire.TabletsDone)

    def catch_up(self, request: wire.CatchUp) -> wire.Reached:
        return self._act("catch_up", request, wire.Reached)

    def abort(self, request: wire.Abort) -> None:
        self._act("abort", request, wire.Done)

    def status(self) -> wire.NodeStatus:
        return self._act("status", wire.AskStatus(), wire.NodeStatus)

    def ping(self, within_s: float) -> None:
        self._channel.answers(within_s)

    def close(self) -> None:
        self._channel.close()

    def _get(
        self, purpose: str, request: wire.ScanRequest | wire.CopyRequest, timeout_s: float | None
    ) -> BatchStream:
        ticket = flight.Ticket(msgspec.json.encode(request))

        def begin(headers: Headers) -> tuple[Any, pa.Schema]:
            options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
            reader = self._channel.client.do_get(ticket, options)
            return reader, reader.schema

        return _Batches(self._peer, purpose, *self._channel.call(purpose, begin, within_s=timeout_s))

    def _act(self, name: str, body: msgspec.Struct, answer: type[M]) -> M:
        action = flight.Action(name, msgspec.json.encode(body))

        def act(headers: Headers) -> bytes:
            options = flight.FlightCallOptions(timeout=ACTION_TIMEOUT_S, headers=headers)
            (result,) = self._channel.client.do_action(action, options)
            return bytes(result.body)

        return decode_json(self._channel.call(name, act, within_s=ACTION_TIMEOUT_S), answer)


class _Put:
    def __init__(
        self, peer: str, columns: pa.Schema, writer: Any, reader: Any, check: Callable[[], None]
    ) -> None:
        self._peer, self._columns, self._writer, self._reader = peer, columns, writer, reader
        self._check = check

    def write(self, tablet: wire.TabletId, batch: pa.RecordBatch) -> None:
        if batch.schema != self._columns:  # said here: the stream itself would be as it was
            raise DefinitionError(
                "a batch has other columns than its stream", expected=self._columns, found=batch.schema
            )
        metadata = pa.py_buffer(msgspec.json.encode(tablet))
        try:
            self._writer.write_with_metadata(batch, metadata)
        except FAILURES as error:
            raise self._reason(error) from error

    def finish(self, end: wire.PutEnd) -> wire.PutAnswer:
        try:
            self._writer.write_metadata(pa.py_buffer(msgspec.json.encode(end)))
            self._writer.done_writing()
            answer = self._reader.read_chunk().app_metadata
            self._writer.close()
        except (*FAILURES, StopIteration) as error:
            raise self._reason(error) from error
        self._check()
        return decode_json(answer.to_pybytes(), wire.PutAnswer)

    def cancel(self) -> None:
        self._reader.cancel()

    def _reason(self, error: Exception) -> Exception:
        """Return the reason of a failure. The node's own words are in its answer, not where writing broke."""
        try:
            self._reader.read_chunk()
        except StopIteration:
            return Unavailable(f"{self._peer} has ended a load", found=str(error))
        except FAILURES as reason:
            error = reason
        return named(self._peer, "take rows", error)


class _Batches:
    def __init__(self, peer: str, what: str, reader: Any, schema: pa.Schema) -> None:
        self._peer, self._what, self._reader = peer, what, reader
        self.schema = schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from iter(lambda: next_batch(self._reader), None)
        except FAILURES as error:
            raise named(self._peer, self._what, error) from error

    def cancel(self) -> None:
        self._reader.cancel()


class StorageClients(FlightClients[StorageClient]):
    """Clients of storage nodes by address. Thread-safe."""

    def __init__(self, token: str, *, ca: bytes | None = None) -> None:
        super().__init__(lambda address: StorageClient(address, token, ca=ca))
