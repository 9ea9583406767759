"""The client of another consumer of a capture subscription."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, RtolapError, Unanswered
from rtolap.protocols.capture.messages import PART_COLUMN, PartDone, PartHead
from rtolap.protocols.flight.channel import FAILURES, FlightChannel, Headers
from rtolap.protocols.flight.client import ERROR_MARK, named

PART_SCHEMA = pa.schema([pa.field(PART_COLUMN, pa.large_binary(), nullable=False)])
PROOF_S = 5.0  # for the exchange in which the other end shows that it answers, and who it is
GRACE_S = 5.0  # beyond the time of a part: what began in time may end a little later


class PartCall:
    """A call that is under way. `cancel` may be called from any thread, at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reader: Any = None
        self._cancelled = False

    def cancel(self) -> None:
        """Give the call up: `deliver` raises Unanswered soon."""
        with self._lock:
            self._cancelled = True
            if self._reader is not None:
                self._reader.cancel()

    def begun(self, reader: Any) -> None:
        with self._lock:
            self._reader = reader
            if self._cancelled:
                reader.cancel()


class CaptureClient(Closeable):
    """Thread-safe; connects on the first call."""

    def __init__(self, address: str, token: str) -> None:
        self._peer = f"the consumer at {address}"
        self._channel = FlightChannel(self._peer, address, token)

    def deliver(self, head: PartHead, events: pa.RecordBatch, cells: pa.RecordBatch, call: PartCall) -> None:
        """Return once the other consumer has made the events durable.

        Raises the error that it names; Unanswered where it names none: the events may be durable or not.
        """
        descriptor = flight.FlightDescriptor.for_command(msgspec.json.encode(head))
        timeout_s = head.remaining_ms / 1000 + GRACE_S
        bodies = [_ipc(events), _ipc(cells)]

        def begin(headers: Headers) -> tuple[Any, Any]:
            options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
            writer, reader = self._channel.client.do_exchange(descriptor, options)
            call.begun(reader)
            writer.begin(PART_SCHEMA)
            return writer, reader

        try:
            self._channel.answers(min(PROOF_S, timeout_s))  # rows go before an answer comes
            (writer, reader), check = self._channel.begin("take edits", begin)
            try:
                for body in bodies:
                    writer.write_batch(pa.RecordBatch.from_arrays([body], schema=PART_SCHEMA))
                writer.done_writing()
                answer = reader.read_chunk().app_metadata
                check()
            finally:
                writer.close()
        except StopIteration as error:
            raise Unanswered(f"{self._peer} ended a call without an answer") from error
        except FAILURES as error:
            if ERROR_MARK in str(error):
                raise named(self._peer, "take edits", error) from error
            raise Unanswered(f"{self._peer} does not answer", found=str(error)[:300]) from error
        except RtolapError as error:
            if error.code == "unavailable" and ERROR_MARK not in str(error):
                raise Unanswered(f"{self._peer} does not answer", found=str(error)[:300]) from error
            raise
        done = decode_json(answer.to_pybytes(), PartDone)
        if done.events != events.num_rows:
            raise Corrupted(f"{self._peer} took other events", expected=events.num_rows, found=done.events)

    def close(self) -> None:
        self._channel.close()


def _ipc(batch: pa.RecordBatch) -> pa.Array:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    offsets = pa.array([0, body.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, body])
