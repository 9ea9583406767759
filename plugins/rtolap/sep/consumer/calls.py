"""Calls of a region server: decoded, handed to delivery, answered by a result or by an exception of HBase.

An exception makes the region server send the same edits again after a pause; it looks at neither the class
nor `do_not_retry`, but logs class and message, for the people who read its log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted, NotInLog, RtolapError, TooLarge, TooSlow, Unavailable
from rtolap.sep.consumer.frames import Request
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.events.decode import DecodedCall, EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.hbase.rpc_pb2 import ConnectionHeader

log = logging.getLogger(__name__)

REPLICATE: Final = "ReplicateWALEntry"

# Takes all events of a call, and when the caller gives up, by time.monotonic(); returns once they are
# delivered, and raises if not all of them are.
Deliver = Callable[[EditBatch, float], Awaitable[None]]
# From the serialized parameter of a call to its serialized result.
Answer = Callable[[bytes], bytes]


class EditBounds(Protocol):
    """Tells edits that the source cannot have written, see `log_bounds`."""

    async def check(self, batch: EditBatch, deadline_s: float) -> NDArray[np.bool_] | None:
        """Return which events are to be set apart, None for none. Raises NotInLog where the source cannot
        have written an event, Unavailable where that is not known now."""

    def close(self) -> None: ...


# Takes events that are not to be delivered; returns once they and the reason are stored.
SetApart = Callable[[EditBatch, str], Awaitable[None]]

# Outcomes after which a connection has to prove itself again.
DISPROVING: Final = frozenset({"unreadable", "not_in_log", "unsupported", "unknown_method"})
_NOT_IN_LOG: Final = "HBase's logs cannot hold this edit, or its table was truncated or restored"
_PARAMETER_BYTES_MAX: Final = 64 << 10  # of calls that ship nothing

_INLINE_BYTES_MAX: Final = 256 << 10  # smaller calls are decoded sooner than a thread takes them over

_MESSAGE_MAX: Final = 2000
# classes of Java, as HBase names its exceptions
_OPERATION: Final = "java.lang.UnsupportedOperationException"
_CODEC: Final = "org.apache.hadoop.hbase.ipc.UnsupportedCellCodecException"
_COMPRESSOR: Final = "org.apache.hadoop.hbase.ipc.UnsupportedCompressionCodecException"
ACCESS_DENIED: Final = "org.apache.hadoop.hbase.security.AccessDeniedException"
_OTHER: Final = "java.io.IOException"
_CLASSES: Final[Mapping[type[RtolapError], str]] = {
    Corrupted: "org.apache.hadoop.hbase.DoNotRetryIOException",
    NotInLog: "org.apache.hadoop.hbase.DoNotRetryIOException",
    TooLarge: "org.apache.hadoop.hbase.DoNotRetryIOException",
    TooSlow: "org.apache.hadoop.hbase.exceptions.TimeoutIOException",
    Unavailable: "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException",
}
_CODECS: Final = frozenset(
    {
        "org.apache.hadoop.hbase.codec.KeyValueCodec",
        "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags",
    }
)


@dataclass(frozen=True, slots=True)
class Answered:
    """The serialized result of a call that went well, and how many events of it were delivered."""

    result: bytes = b""
    events: int = 0


class CallFailure(Exception):
    """A call that fails.

    Attributes:
        outcome: one of `metrics.CALL_OUTCOMES`.
        class_name: the Java class of the exception that the region server gets.
        message: the reason, for people.
    """

    def __init__(self, outcome: str, class_name: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.class_name = class_name
        self.message = message[:_MESSAGE_MAX]


def failure_of(outcome: str, error: Exception) -> CallFailure:
    named = (class_name for kind, class_name in _CLASSES.items() if isinstance(error, kind))
    text = str(error) if isinstance(error, RtolapError) else f"{type(error).__name__}: {error}"
    return CallFailure(outcome, next(named, _OTHER), text)


def unknown_method(method: str, known: list[str]) -> CallFailure:
    message = f"{method[:100]!r} is no method of a consumer of change capture; expected one of {known}"
    return CallFailure("unknown_method", _OPERATION, message)


def unsupported_encoding(header: ConnectionHeader) -> CallFailure | None:
    """Return what every call of the connection is answered with; None if its cells can be read."""
    codec, compressor = header.cell_block_codec_class, header.cell_block_compressor_class
    if compressor:
        message = (
            f"compressed cell blocks are not read; found {compressor[:200]}; "
            "take hbase.client.rpc.compressor out of the region servers' settings"
        )
        return CallFailure("unsupported", _COMPRESSOR, message)
    if codec and codec not in _CODECS:
        message = (
            f"cell blocks of this codec are not read; expected {sorted(_CODECS)}; found {codec[:200]}; "
            "set hbase.replication.rpc.codec of the region servers"
        )
        return CallFailure("unsupported", _CODEC, message)
    return None


class CallHandler:
    """Answers the calls of all connections of a consumer, in one event loop.

    Args:
        default_timeout_s: the timeout of calls whose client names none.
        answers: methods beside ReplicateWALEntry, by name.
        bounds: the limits that events must meet before they are delivered; None for no limits.
        set_apart: takes the events that are to be set apart.
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
        bounds: EditBounds | None = None,
        set_apart: SetApart | None = None,
    ) -> None:
        self._decoder = decoder
        self._deliver = deliver
        self._metrics = metrics
        self._executor = executor
        self._default_timeout_s = default_timeout_s
        self._answers = dict(answers or {})
        self._bounds = bounds
        self._set_apart = set_apart

    async def handle(self, request: Request, arrived_s: float) -> Answered:
        """Return the answer. `arrived_s`: when the first byte came, by time.monotonic().

        Raises CallFailure, and nothing else, for whatever goes wrong.
        """
        if request.method == REPLICATE:
            started_s = time.monotonic()
            events = await self._replicate(request, arrived_s)
            self._metrics.call_seconds.observe(time.monotonic() - started_s)
            return Answered(events=events)
        answer = self._answers.get(request.method)
        if answer is None:
            raise unknown_method(request.method, sorted((REPLICATE, *self._answers)))
        try:
            if len(request.parameter) > _PARAMETER_BYTES_MAX:
                raise TooLarge(
                    f"the parameter of {request.method} is too large",
                    expected=f"at most {_PARAMETER_BYTES_MAX} bytes",
                    found=len(request.parameter),
                )
            return Answered(answer(bytes(request.parameter)))
        except RtolapError as error:
            raise failure_of("unreadable", error) from error

    async def _replicate(self, request: Request, arrived_s: float) -> int:
        """Return how many events were delivered."""
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else self._default_timeout_s
        deadline_s = arrived_s + timeout_s
        try:
            call = await self._decoded(request)
        except RtolapError as error:
            log.warning("a call of ReplicateWALEntry is refused: %s", error)
            raise failure_of("unreadable", error) from error
        self._metrics.decoded(call)
        if not call.batch.num_events:
            return 0
        batch = call.batch if self._bounds is None else await self._checked(call.batch, deadline_s)
        if not batch.num_events:
            return 0
        if time.monotonic() >= deadline_s:
            late = TooSlow(
                "the call was not begun, for its caller has given it up",
                expected=f"its bytes, and a beginning, within {timeout_s:g} s",
                action="raise replication.source.shipedits.timeout of the region servers",
            )
            raise failure_of("late", late)
        try:
            await self._deliver(batch, deadline_s)
        except Exception as error:  # whatever a listener raises means: send it again
            log.warning("the %d events of a call are not delivered: %s", batch.num_events, error)
            raise failure_of("failed", error) from error
        return batch.num_events

    async def _checked(self, batch: EditBatch, deadline_s: float) -> EditBatch:
        """Return the events that may be delivered; the others are set apart."""
        assert self._bounds is not None
        try:
            apart = await self._bounds.check(batch, deadline_s)
            if apart is None:
                return batch
            assert self._set_apart is not None, "who sets apart takes events"
            await self._set_apart(batch.filter(apart), _NOT_IN_LOG)
        except NotInLog as error:
            log.warning("a call of ReplicateWALEntry is refused: %s", error)
            raise failure_of("not_in_log", error) from error
        except RtolapError as error:
            raise failure_of("failed", error) from error
        self._metrics.set_apart(int(apart.sum()))
        return batch.filter(~apart)

    async def _decoded(self, request: Request) -> DecodedCall:
        parameter, cell_block = request.take_body()
        if len(parameter) + len(cell_block) <= _INLINE_BYTES_MAX:
            return self._decoder.decode(parameter, cell_block)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._decoder.decode, parameter, cell_block)
