"""Calls of a region server: decoded, handed to delivery, and answered by a result or by a CallFailure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Final

from rtolap.base.errors import RtolapError, TooSlow
from rtolap.sep.consumer.failures import failure_of, unknown_method
from rtolap.sep.consumer.frames import Request
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.events.decode import DecodedCall, EditDecoder
from rtolap.sep.events.edit_batch import EditBatch

log = logging.getLogger(__name__)

REPLICATE: Final = "ReplicateWALEntry"

# Takes all events of a call, and when the caller gives up, by time.monotonic(); returns once they are
# delivered, and raises if not all of them are.
Deliver = Callable[[EditBatch, float], Awaitable[None]]
# From the serialized parameter of a call to its serialized result.
Answer = Callable[[bytes], bytes]

_INLINE_BYTES_MAX: Final = 256 << 10  # smaller calls are decoded sooner than a thread takes them over


class CallHandler:
    """Answers the calls of all connections of a consumer; for one event loop.

    `answers`: methods beside ReplicateWALEntry. `default_timeout_s`: of calls whose client names none.
    """

    def __init__(
        self,
        decoder: EditDecoder,
        deliver: Deliver,
        metrics: ConsumerMetrics,
        executor: Executor,
        *,
        default_timeout_s: float,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self._decoder = decoder
        self._deliver = deliver
        self._metrics = metrics
        self._executor = executor
        self._default_timeout_s = default_timeout_s
        self._answers = dict(answers or {})

    async def handle(self, request: Request, arrived_s: float) -> bytes:
        """Return the serialized result. `arrived_s`: when the first byte came, by time.monotonic().

        Raises CallFailure, and nothing else, for whatever goes wrong.
        """
        if request.method == REPLICATE:
            started_s = time.monotonic()
            await self._replicate(request, arrived_s)
            self._metrics.call_seconds.observe(time.monotonic() - started_s)
            return b""
        answer = self._answers.get(request.method)
        if answer is None:
            raise unknown_method(request.method, sorted((REPLICATE, *self._answers)))
        try:
            return answer(bytes(request.parameter))
        except RtolapError as error:
            raise failure_of("unreadable", error) from error

    async def _replicate(self, request: Request, arrived_s: float) -> None:
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else self._default_timeout_s
        deadline_s = arrived_s + timeout_s
        try:
            call = await self._decoded(request)
        except RtolapError as error:
            log.warning("a call of ReplicateWALEntry is refused: %s", error)
            raise failure_of("unreadable", error) from error
        self._metrics.decoded(call)
        if not call.batch.num_events:
            return
        if time.monotonic() >= deadline_s:
            late = TooSlow(
                "the call was not begun, for its caller has given it up",
                expected=f"its bytes, and a beginning, within {timeout_s:g} s",
                action="raise replication.source.shipedits.timeout of the region servers",
            )
            raise failure_of("late", late)
        try:
            await self._deliver(call.batch, deadline_s)
        except Exception as error:  # whatever a listener raises means: send it again
            log.warning("the %d events of a call are not delivered: %s", call.batch.num_events, error)
            raise failure_of("failed", error) from error

    async def _decoded(self, request: Request) -> DecodedCall:
        parameter, cell_block = request.take_body()
        if len(parameter) + len(cell_block) <= _INLINE_BYTES_MAX:
            return self._decoder.decode(parameter, cell_block)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._decoder.decode, parameter, cell_block)
