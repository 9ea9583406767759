"""Delivery for an event loop: calls wait here, a thread takes all that wait as one group.

So calls that come while a transaction is under way share the next one. Between groups it replays what is set
apart, when that is due, and does what a command requests.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.base.clock import Clock
from rtolap.base.errors import NotLeader, RtolapError, Unavailable
from rtolap.sep.delivery.delivery import Call, Delivery
from rtolap.sep.events.edit_batch import EditBatch

log = logging.getLogger(__name__)

GROUP_EVENTS_MAX = 200_000
GROUP_BYTES_MAX = 256 << 20
_LOOK_S = 0.5  # a pause may end, a call's time too
_IDLE_LOOK_S = 5.0  # a replay may be due


@dataclass(frozen=True)
class WaitingCalls:
    """The calls that wait for a group or are in one.

    Attributes:
        oldest_ms: how long the oldest one has waited; 0 without any.
    """

    calls: int = 0
    events: int = 0
    oldest_ms: int = 0


class _Waiting(Call):
    """A call with the task that awaits it."""

    def __init__(self, batch: EditBatch, deadline_s: float, since_s: float) -> None:
        super().__init__(batch, deadline_s)
        self.since_s = since_s
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def answer(self, error: RtolapError | None) -> None:
        super().answer(error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self.done.done():  # a caller that is gone has cancelled it
            if self.error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(self.error)


class DeliveryThread:
    """The thread of a delivery. `deliver` is for one event loop; all else is thread-safe.

    Args:
        ended: called once, on the thread, with the reason why delivery has ended: NotLeader where another
            process took over, None after `close`.
    """

    def __init__(
        self,
        delivery: Delivery,
        clock: Clock,
        *,
        ended: Callable[[Exception | None], None] = lambda error: None,
    ) -> None:
        self._delivery = delivery
        self._clock = clock
        self._ended = ended
        self._calls: deque[_Waiting] = deque()
        self._unanswered: dict[int, _Waiting] = {}  # in the order in which they came; of the event loop
        self._changed = threading.Condition()
        self._closing = False
        self._requests: deque[Callable[[], None]] = deque()
        self._over: RtolapError | None = None
        self._thread = threading.Thread(target=self._run, name="sep-delivery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None:
        """Return once all events are delivered. `deadline_s`: by the monotonic clock.

        Raises what kept one from being delivered; the others may be.
        """
        call = _Waiting(batch, deadline_s, self._clock.monotonic_s())
        with self._changed:
            if self._over is not None:
                raise self._over
            self._calls.append(call)
            self._changed.notify()
        self._unanswered[id(call)] = call
        try:
            await call.done
        finally:
            del self._unanswered[id(call)]

    def waiting(self) -> WaitingCalls:
        """Return what is not answered yet. Call it on the event loop."""
        calls = list(self._unanswered.values())
        if not calls:
            return WaitingCalls()
        oldest_s = self._clock.monotonic_s() - calls[0].since_s
        return WaitingCalls(len(calls), sum(call.batch.num_events for call in calls), int(oldest_s * 1000))

    async def set_apart(self, batch: EditBatch, reason: str) -> None:
        """Write events to the dead letters, as `Delivery.set_apart`, and wait for it. Raises RtolapError."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: RtolapError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def act() -> None:
            try:
                self._delivery.set_apart(batch, reason)
            except RtolapError as error:
                loop.call_soon_threadsafe(settle, error)
                raise
            loop.call_soon_threadsafe(settle, None)

        if self._over is not None:
            raise self._over
        self.request(act)
        await done

    def request(self, act: Callable[[], None]) -> None:
        """Queue an action that runs between two groups. Errors are logged; NotLeader ends the delivery."""
        with self._changed:
            self._requests.append(act)
            self._changed.notify()

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish the group that is under way; calls that wait are answered with Unavailable."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while not self._closing:
                group = self._next_group()
                if group:
                    self._delivery.run(group)
                self._maintain()
        except NotLeader as over:
            error = over
        except Exception as unexpected:
            log.exception("delivery ends")
            error = unexpected
        self._end(error)

    def _next_group(self) -> list[Call]:
        """Return the calls that wait, as far as they are to go together; none at the end, or where something
        else is to be done."""
        with self._changed:
            while not self._closing and not self._requests:
                if self._calls and self._may_go():
                    return self._taken()
                if not self._changed.wait(_LOOK_S if self._calls else _IDLE_LOOK_S) and self._replay_is_due():
                    break
        return []

    def _replay_is_due(self) -> bool:
        return bool(self._delivery.apart) and self._clock.monotonic_s() >= self._delivery.replay_due_s

    def _maintain(self) -> None:
        if self._replay_is_due():
            self._do(self._replay)
        while True:
            with self._changed:
                if not self._requests or self._closing:
                    return
                act = self._requests.popleft()
            self._do(act)

    def _replay(self) -> None:
        replayed = self._delivery.replay()
        log.info("%d dead letters are replayed, %d rows are back", replayed.delivered, replayed.back)

    def _do(self, act: Callable[[], None]) -> None:
        try:
            act()
        except NotLeader:
            raise
        except RtolapError as error:
            log.warning("it is tried again later: %s", error)

    def _may_go(self) -> bool:
        """Return True if the pause after a failure is over, or if an expired call is to be answered."""
        now_s = self._clock.monotonic_s()
        return now_s >= self._delivery.resumes_s or any(call.deadline_s <= now_s for call in self._calls)

    def _taken(self) -> list[Call]:
        now_s = self._clock.monotonic_s()
        if now_s < self._delivery.resumes_s:
            over = [call for call in self._calls if call.deadline_s <= now_s]
            self._calls = deque(call for call in self._calls if call.deadline_s > now_s)
            return list(over)
        group: list[Call] = []
        events = size = 0
        while self._calls and (not group or (events < GROUP_EVENTS_MAX and size < GROUP_BYTES_MAX)):
            call = self._calls.popleft()
            events += call.batch.num_events
            size += call.batch.size_bytes
            group.append(call)
        return group

    def _end(self, error: Exception | None) -> None:
        reason = error if isinstance(error, RtolapError) else Unavailable("delivery has ended", found=error)
        with self._changed:
            self._over = reason
            left, self._calls = list(self._calls), deque()
        for call in left:
            call.answer(reason)
        self._ended(error)
