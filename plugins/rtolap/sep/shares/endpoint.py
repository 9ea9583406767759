"""The endpoint at which a consumer takes the events of its shares from other consumers.

Both ends prove that they know the cluster's token, as all services do. The protocol: `protocols.capture`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, Protocol, Unpack

import msgspec
import pyarrow as pa

from rtolap.base.errors import Corrupted, NotOwner, QueryError
from rtolap.protocols.capture.client import PART_SCHEMA
from rtolap.protocols.capture.messages import PartDone, PartHead
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch
from rtolap.servers.flight_server import GuardedFlightServer, ServerOptions, body_of, guarded
from rtolap.servers.limits import FlightLimits

OVERHEAD_BYTES_MAX = 16 << 20  # of a part, beyond the frame that its events came in


class TakesParts(Protocol):
    """The shares of this consumer; `held.HeldShare` is each of them."""

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None: ...

    async def set_apart(self, batch: EditBatch, reason: str) -> None: ...


class PartsEndpoint(GuardedFlightServer):
    """Serves as soon as it is made; `port` is the one that it got.

    Args:
        loop: the event loop of the shares.
        cluster_id: the subscription's own.
        share: returns the share of a number; None where there is none.
        frame_bytes_max: the most bytes of a call of a region server.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster_id: str,
        share: Callable[[int], TakesParts | None],
        frame_bytes_max: int,
        **options: Unpack[ServerOptions],
    ) -> None:
        self._loop = loop
        self._cluster_id = cluster_id
        self._share = share
        limits = options.get("limits", FlightLimits())
        options["limits"] = replace(limits, batch_bytes_max=frame_bytes_max + OVERHEAD_BYTES_MAX)
        super().__init__(**options)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        def receive() -> None:
            head = body_of(descriptor.command or b"", PartHead)
            deadline_s = time.monotonic() + head.remaining_ms / 1000
            batch = _read(reader)
            share = self._share(head.share)
            if head.cluster_id != self._cluster_id or share is None:
                raise NotOwner(
                    f"this consumer has no share {head.share} of subscription {head.cluster_id}: "
                    "it was made again, or has other settings"
                )
            self._wait(
                share.set_apart(batch, head.set_apart) if head.set_apart else share.deliver(batch, deadline_s)
            )
            writer.begin(pa.schema([]))
            writer.write_metadata(pa.py_buffer(msgspec.json.encode(PartDone(batch.num_events))))

        guarded(receive)

    def list_actions(self, context: Any) -> Any:
        """Return none. A caller makes this call to see that the endpoint answers."""
        return []

    def _wait(self, delivered: Awaitable[None]) -> None:
        async def wait() -> None:
            await delivered

        future = asyncio.run_coroutine_threadsafe(wait(), self._loop)
        try:
            future.result()
        except CancelledError as error:
            raise NotOwner("this consumer ends") from error


def _read(reader: Any) -> EditBatch:
    if reader.schema != PART_SCHEMA:
        raise QueryError("a part has other columns", expected=str(PART_SCHEMA), found=str(reader.schema))
    events = _batch(reader, EVENTS_SCHEMA)
    cells = _batch(reader, CELLS_SCHEMA)
    counts = events["cell_count"]
    if sum(counts.to_numpy()) != cells.num_rows:
        raise Corrupted("a part has other cells than its events name", found=f"{cells.num_rows} cells")
    return EditBatch(events, cells)


def _batch(reader: Any, schema: pa.Schema) -> pa.RecordBatch:
    try:
        body = reader.read_chunk().data.column(0)[0].as_buffer()
        with pa.ipc.open_stream(body) as stream:
            batch = stream.read_next_batch()
        batch.validate()
    except (StopIteration, pa.ArrowException, AttributeError, IndexError) as error:
        raise Corrupted(
            "a part cannot be read", expected="events and then their cells", found=error
        ) from error
    if batch.schema != schema:
        raise Corrupted("a part has other columns", expected=str(schema), found=str(batch.schema))
    return batch
