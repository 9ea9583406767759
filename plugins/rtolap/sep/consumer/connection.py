"""One connection of a region server: its bytes become frames, its frames calls, and their answers bytes.

A frame is read straight into memory of its own size, which is taken from the consumer's budget first. Reading
stops while the budget is spent, while as many calls as may be are at work, and while the client does not take
its answers; so a client that floods fills its own buffers, not ours.
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
    CallFailure,
    CallHandler,
    failure_of,
    unsupported_encoding,
)
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
from rtolap.sep.consumer.limits import ByteBudget, ConsumerSettings, RefusalLog
from rtolap.sep.consumer.metrics import ConsumerMetrics

log = logging.getLogger(__name__)

_HEADER_BYTES_MAX: Final = 64 << 10


class Consumer(Protocol):
    """The parts that all connections share."""

    settings: ConsumerSettings
    budget: ByteBudget
    handler: CallHandler
    metrics: ConsumerMetrics
    refusals: RefusalLog

    def opened(self, connection: Connection, address: str) -> None:
        """Call `admit` or `close` of the connection, now or later."""
        ...

    def ended(self, connection: Connection) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Connection(asyncio.BufferedProtocol):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._reason = "client"
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        # the part that is being read, how much of it is there, and what is done with it
        self._part = bytearray(PREAMBLE_BYTES)
        self._filled = 0
        self._phase = self._preamble_read
        self._arrived_s = 0.0
        self._wanted_bytes = 0
        self._reserved_bytes = 0
        self._waits_for_bytes = False
        # why nothing is read at the moment
        self._paused_for: set[str] = set()
        self._calls = 0
        self._failure: CallFailure | None = None

    # -- of asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else "?"
        self._consumer.metrics.accepted()
        self._pause("admission")
        self._limit(self._consumer.settings.handshake_timeout_s)
        self._consumer.opened(self, self._address)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._part)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closed:
            return
        if not self._filled and self._phase == self._length_read:
            self._arrived_s = time.monotonic()
            self._limit(self._consumer.settings.frame_timeout_s)
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
        if self._waits_for_bytes:
            self._consumer.budget.forget(self._bytes_are_free)
        self._release(self._reserved_bytes)
        self._reserved_bytes = 0
        self._part = bytearray()
        self._consumer.metrics.closed(self._reason)
        self._consumer.ended(self)

    # -- of the consumer ---------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self._address

    @property
    def calls(self) -> int:
        """Calls that are not answered yet."""
        return self._calls

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
            self._consumer.refusals.refused(self._address, self._failure)
        self._expect_frame()

    def _expect_frame(self) -> None:
        self._limit(self._consumer.settings.idle_timeout_s)
        self._expect(bytearray(LENGTH_BYTES), self._length_read)

    def _length_read(self) -> None:
        length = int.from_bytes(self._part, "big", signed=True)
        if not 0 < length <= self._consumer.settings.frame_bytes_max:
            self._refuse("oversized" if length > 0 else "torn", f"a frame of {length} bytes")
            return
        self._wanted_bytes, self._waits_for_bytes = length, True
        if not self._consumer.budget.reserve(length, self._bytes_are_free):
            self._limit(None)  # it is not the client who is slow
            self._pause("bytes")

    def _bytes_are_free(self) -> None:
        self._waits_for_bytes = False
        self._reserved_bytes = self._wanted_bytes
        self._expect(bytearray(self._reserved_bytes), self._frame_read)
        self._limit(self._consumer.settings.frame_timeout_s)
        self._resume("bytes")

    def _frame_read(self) -> None:
        frame, size_bytes, arrived_s = self._part, self._reserved_bytes, self._arrived_s
        self._reserved_bytes = 0
        self._consumer.metrics.received(size_bytes)
        self._calls += 1
        if self._calls >= self._consumer.settings.calls_per_connection_max:
            self._pause("calls")
        self._expect_frame()
        self._consumer.spawn(self._answer(frame, size_bytes, arrived_s))

    # -- calls -------------------------------------------------------------------------------------------

    async def _answer(self, frame: bytearray, size_bytes: int, arrived_s: float) -> None:
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
            self._release(size_bytes)
            self._calls -= 1
            self._resume("calls")

    async def _answer_to(self, request: Request, arrived_s: float) -> bytes:
        failure = self._failure
        if failure is None:
            try:
                result = await self._consumer.handler.handle(request, arrived_s)
            except CallFailure as error:
                failure = error
            except Exception as error:  # a fault of ours is answered too, else its caller waits in vain
                log.exception("a call of %s from %s ended unexpectedly", request.method[:100], self._address)
                failure = failure_of("failed", error)
            else:
                self._consumer.metrics.answered("done")
                return result_frame(request.call_id, result)
        self._consumer.metrics.answered(failure.outcome)
        return exception_frame(request.call_id, failure.class_name, failure.message)

    # -- bounds ------------------------------------------------------------------------------------------

    def _release(self, size_bytes: int) -> None:
        if size_bytes:
            self._consumer.budget.give_back(size_bytes)

    def _refuse(self, reason: str, found: object, answer: bytes = b"") -> None:
        self._consumer.refusals.refused(self._address, found)
        self.close(reason, answer)

    def _limit(self, timeout_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if timeout_s is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over)

    def _time_is_over(self) -> None:
        if self._calls and not self._filled and self._phase == self._length_read:
            self._limit(self._consumer.settings.idle_timeout_s)  # it waits for answers of ours
            return
        self._consumer.refusals.refused(self._address, "nothing came for too long")
        self.abort("silent")

    def _pause(self, cause: str) -> None:
        if not self._paused_for and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_for.add(cause)

    def _resume(self, cause: str) -> None:
        self._paused_for.discard(cause)
        if not self._paused_for and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
