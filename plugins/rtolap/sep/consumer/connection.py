"""A connection of a region server: its bytes become frames, its frames calls, and their answers bytes.

A frame is read straight into memory that grows as its bytes come, out of the consumer's budget. Reading stops
while the budget is spent, while as many calls as may be are at work, and while the client does not take its
answers; so a client that floods fills its own buffers, not ours.

A connection is *proven* once edits that it has sent were delivered, and until it sends what cannot be read or
cannot be true. Proven ones come first where memory or connections are scarce.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, cast

from rtolap.base.errors import Corrupted, Unauthorized
from rtolap.sep.consumer.calls import (
    ACCESS_DENIED,
    DISPROVING,
    CallFailure,
    CallHandler,
    failure_of,
    unsupported_encoding,
)
from rtolap.sep.consumer.frame_budget import FrameBudget, FrameMemory
from rtolap.sep.consumer.frames import (
    LENGTH_BYTES,
    PREAMBLE_BYTES,
    Request,
    check_preamble,
    exception_frame,
    login_refusal,
    parse_connection_header,
    parse_request,
    result_frame,
)
from rtolap.sep.consumer.limits import ConsumerSettings, RefusalLog
from rtolap.sep.consumer.metrics import ConsumerMetrics

log = logging.getLogger(__name__)

_HEADER_BYTES_MAX: Final = 64 << 10


class Consumer(Protocol):
    """The parts that all connections share."""

    settings: ConsumerSettings
    budget: FrameBudget
    handler: CallHandler
    metrics: ConsumerMetrics
    refusals: RefusalLog

    def opened(self, connection: Connection, address: str) -> None:
        """Call `admit` or `close` of the connection, now or later."""

    def ended(self, connection: Connection) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Connection(asyncio.BufferedProtocol):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._transport: asyncio.Transport | None = None
        self.address = "?"
        self._reason = "client"
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        # the part that is being read, how much of it is there, and what is done with it
        self._part = bytearray(PREAMBLE_BYTES)
        self._filled = 0
        self._phase = self._preamble_read
        self._arrived_s = 0.0
        self._frame: FrameMemory | None = None
        self._waited_s = 0.0  # of the frame's time: until there was memory for it
        self._waits_since_s: float | None = None
        # why nothing is read at the moment
        self._paused_for: set[str] = set()
        self.calls = 0  # that are not answered yet
        self._failure: CallFailure | None = None
        self.is_proven = False
        self.active_s = time.monotonic()  # when bytes came last, by the monotonic clock

    # -- of asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else "?"
        self._consumer.metrics.accepted()
        self._pause("admission")
        self._limit(self._consumer.settings.handshake_timeout_s)
        self._consumer.opened(self, self.address)

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is not None and self._filled == len(self._part) < frame.granted_bytes:
            self._part += bytes(frame.granted_bytes - self._filled)
        return memoryview(self._part)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closed:
            return
        self.active_s = time.monotonic()
        if not self._filled and self._phase == self._length_read:
            self._arrived_s = self.active_s
            self._limit(self._consumer.settings.frame_grace_s)
        self._filled += nbytes
        if self._filled == len(self._part):
            self._phase()

    def pause_writing(self) -> None:
        self._pause("answers")

    def resume_writing(self) -> None:
        self._resume("answers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._frame is not None:
            self._consumer.budget.end(self._frame)
            self._frame = None
        self._part = bytearray()
        self._consumer.metrics.closed(self._reason)
        self._consumer.ended(self)

    # -- of the consumer ---------------------------------------------------------------------------------

    def admit(self) -> None:
        self._resume("admission")

    def stop_reading(self) -> None:
        """Take no further call; those that are at work are answered."""
        self._pause("draining")

    def close(self, reason: str, answer: bytes = b"") -> None:
        """Close once what was answered is sent. `reason` is one of metrics.CLOSED_REASONS."""
        if self._closed or self._transport is None:
            return
        self._closed, self._reason = True, reason
        if answer:
            self._transport.write(answer)
        self._pause("closing")
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close without sending what waits."""
        if self._transport is not None:
            self._reason = reason if not self._closed else self._reason
            self._closed = True
            if self._frame is not None:
                self._consumer.budget.end(self._frame)
                self._frame = None
            self._transport.abort()

    # -- parts of the stream -----------------------------------------------------------------------------

    def _expect(self, part: bytearray, phase: Any) -> None:
        self._part, self._filled, self._phase = part, 0, phase

    def _preamble_read(self) -> None:
        try:
            check_preamble(bytes(self._part))
        except Unauthorized as error:
            self._refuse("kerberos", error, login_refusal(bytes(self._part), ACCESS_DENIED, str(error)))
        except Corrupted as error:
            self._refuse("preamble", error)
        else:
            self._expect(bytearray(LENGTH_BYTES), self._header_length_read)

    def _header_length_read(self) -> None:
        length = int.from_bytes(self._part, "big", signed=True)
        if 0 < length <= _HEADER_BYTES_MAX:
            self._expect(bytearray(length), self._header_read)
        elif length == 0:
            self._header_read()
        else:
            self._refuse("header", f"a connection header of {length} bytes")

    def _header_read(self) -> None:
        is_empty = self._phase == self._header_length_read
        try:
            header = parse_connection_header(b"" if is_empty else self._part)
        except Corrupted as error:
            self._refuse("header", error)
            return
        self._failure = unsupported_encoding(header)
        if self._failure is not None:
            self._consumer.refusals.refused(self.address, self._failure)
        self._expect_frame()

    def _expect_frame(self) -> None:
        self._limit(self._consumer.settings.idle_timeout_s)
        self._expect(bytearray(LENGTH_BYTES), self._length_read)

    def _length_read(self) -> None:
        length = int.from_bytes(self._part, "big", signed=True)
        if not 0 < length <= self._consumer.settings.frame_bytes_max:
            self._refuse("oversized" if length > 0 else "torn", f"a frame of {length} bytes")
            return
        self._waited_s = 0.0
        frame = self._frame = self._consumer.budget.begin(
            self.address,
            length,
            proven=self.is_proven,
            at_work=self.calls > 0,
            resume=self._chunk_granted,
            drop=self._hold_up,
        )
        self._expect(bytearray(frame.granted_bytes), self._chunk_read)
        if not frame.granted_bytes:
            self._wait_for_chunk()

    def _chunk_read(self) -> None:
        frame = self._frame
        assert frame is not None, "a frame is read"
        if self._filled == frame.size_bytes:
            self._frame_read(frame)
        elif not self._consumer.budget.grow(frame):
            self._wait_for_chunk()

    def _wait_for_chunk(self) -> None:
        self._waits_since_s = time.monotonic()
        self._limit(None)  # it is not the client who is slow
        self._pause("bytes")

    def _chunk_granted(self) -> None:
        if self._waits_since_s is not None:
            self._waited_s += time.monotonic() - self._waits_since_s
        self._waits_since_s = None
        self._limit(self._frame_time_left_s())
        self._resume("bytes")

    def _frame_time_left_s(self) -> float:
        """Return how long the frame may still stand still, below 0 where it came too slowly."""
        settings = self._consumer.settings
        took_s = time.monotonic() - self._arrived_s - self._waited_s
        return settings.frame_grace_s + self._filled / settings.frame_bytes_per_s_min - took_s

    def _hold_up(self) -> None:
        """Close the connection for frames that others wait for: this one holds memory and does not fill
        it."""
        self._too_slow("a frame stood still while others waited for memory")

    def _too_slow(self, found: str) -> None:
        self._consumer.refusals.refused(self.address, found)
        self.abort("slow")

    def _frame_read(self, memory: FrameMemory) -> None:
        frame, arrived_s = self._part, self._arrived_s
        self._frame = None
        self._consumer.budget.complete(memory)
        self._consumer.metrics.received(memory.size_bytes)
        self.calls += 1
        if self.calls >= (self._consumer.settings.calls_per_connection_max if self.is_proven else 1):
            self._pause("calls")
        self._expect_frame()
        self._consumer.spawn(self._answer(frame, memory, arrived_s))

    # -- calls -------------------------------------------------------------------------------------------

    async def _answer(self, frame: bytearray, memory: FrameMemory, arrived_s: float) -> None:
        try:
            request = parse_request(frame)
            del frame  # it is not needed any more once its events are columns
            answer = await self._answer_to(request, arrived_s)
        except Corrupted as error:  # who sent it is out of step: no further frame can be trusted
            self._refuse("torn", error)
        else:
            if not self._closed and self._transport is not None:
                self._transport.write(answer)
        finally:
            self._consumer.budget.end(memory)
            self.calls -= 1
            self._resume("calls")

    async def _answer_to(self, request: Request, arrived_s: float) -> bytes:
        failure = self._failure
        if failure is None:
            try:
                answered = await self._consumer.handler.handle(request, arrived_s)
            except CallFailure as error:
                failure = error
            except Exception as error:  # a fault of ours is answered too, or its caller would wait for ever
                log.exception("a call of %s from %s ended unexpectedly", request.method[:100], self.address)
                failure = failure_of("failed", error)
            else:
                self.is_proven = self.is_proven or answered.events > 0
                self._consumer.metrics.answered("done")
                return result_frame(request.call_id, answered.result)
        if failure.outcome in DISPROVING:
            self.is_proven = False
        self._consumer.metrics.answered(failure.outcome)
        return exception_frame(request.call_id, failure.class_name, failure.message)

    # -- bounds ------------------------------------------------------------------------------------------

    def _refuse(self, reason: str, found: object, answer: bytes = b"") -> None:
        self._consumer.refusals.refused(self.address, found)
        self.close(reason, answer)

    def _limit(self, timeout_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if timeout_s is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over)

    def _time_is_over(self) -> None:
        if self.calls and not self._filled and self._phase == self._length_read:
            self._limit(self._consumer.settings.idle_timeout_s)  # it waits for answers of ours
            return
        if self._frame is not None:
            left_s = self._frame_time_left_s()
            if left_s > 0:
                self._limit(left_s)
            else:
                self._too_slow(f"{self._filled} of {self._frame.size_bytes} bytes of a frame came too slowly")
            return
        self._consumer.refusals.refused(self.address, "nothing came for too long")
        self.abort("silent")

    def _pause(self, cause: str) -> None:
        if not self._paused_for and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_for.add(cause)

    def _resume(self, cause: str) -> None:
        self._paused_for.discard(cause)
        if not self._paused_for and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
