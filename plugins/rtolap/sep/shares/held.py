"""A share in this consumer: the actions of its states, executed, and the parts that it takes.

To take a share over, in this order:
    1. claim the node                         crash: it goes with the session, and another one claims
    2. take the share's transactional id      crash: the same; the holder before can write nothing any more
    3. read the journal                       crash: the same; nothing was written
    4. take parts                             crash: region servers send again what was not acknowledged

To give it back:
    1. take no parts any more, answer those that wait with NotOwner: they are sent to the next holder
    2. finish the group that is under way     crash in 1 and 2: the session ends, and the share is taken over
    3. close the connections                  crash: the same
    4. remove the node                        the next holder claims it without waiting for the session
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rtolap.base.clock import Clock
from rtolap.base.errors import NotOwner, RtolapError, Unavailable
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.serving import DeliveryThread, WaitingCalls
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.shares.states import ShareAction, ShareEvent, ShareState, changed

log = logging.getLogger(__name__)


class HeldShare:
    """A share of a subscription in this process, for one event loop.

    Args:
        open_delivery: opens the delivery of the share.
        release: removes the share's node, if it is this consumer's.
        notify: called when the share needs another look.
    """

    def __init__(
        self,
        share: int,
        clock: Clock,
        *,
        open_delivery: Callable[[], Delivery],
        release: Callable[[], None],
        notify: Callable[[], None],
    ) -> None:
        self.share = share
        self.state = ShareState.FREE
        self.delivery: Delivery | None = None
        self.fenced = False
        self.failures = 0
        self._clock = clock
        self._open_delivery = open_delivery
        self._release = release
        self._notify = notify
        self._opened: Delivery | None = None
        self._thread: DeliveryThread | None = None

    @property
    def is_serving(self) -> bool:
        return self._thread is not None

    @property
    def thread(self) -> DeliveryThread | None:
        """The thread of the delivery while the share is served."""
        return self._thread

    def waiting(self) -> WaitingCalls:
        return WaitingCalls() if self._thread is None else self._thread.waiting()

    async def handle(self, event: ShareEvent) -> None:
        """Change the state, and execute the actions, one after the other."""
        self.state, actions = changed(self.state, event, self.share)
        for action in actions:
            await _ACTIONS[action](self)

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None:
        """Return once all events are durable. Raises NotOwner where another consumer is to be asked."""
        await self._with_thread(lambda thread: thread.deliver(batch, deadline_s))

    async def set_apart(self, batch: EditBatch, reason: str) -> None:
        await self._with_thread(lambda thread: thread.set_apart(batch, reason))

    async def _with_thread(self, call: Callable[[DeliveryThread], object]) -> None:
        thread = self._thread
        if thread is None:
            raise self._not_ours()
        try:
            await call(thread)  # type: ignore[misc]
        except Unavailable as error:
            if self._thread is not thread:  # it is given back, or was taken away, meanwhile
                raise self._not_ours() from error
            raise

    def _not_ours(self) -> NotOwner:
        return NotOwner(f"this consumer does not deliver share {self.share}")

    # -- the actions -------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        began_s = time.monotonic()
        try:
            self._opened = await asyncio.to_thread(self._open_delivery)
            await asyncio.to_thread(self._opened.recover)
        except RtolapError as error:
            self.failures += 1
            log.warning("share %d cannot be delivered yet: %s", self.share, error)
            await self.handle(ShareEvent.FAILED)
            return
        self.failures = 0
        log.info(
            "delivers share %d; what was delivered is known after %.1f s",
            self.share,
            time.monotonic() - began_s,
        )
        await self.handle(ShareEvent.RECOVERED)

    async def _serve(self) -> None:
        assert self._opened is not None, "it was recovered"
        loop = asyncio.get_running_loop()

        def ended(error: Exception | None) -> None:
            if error is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._ended, thread)

        thread = DeliveryThread(self._opened, self._clock, ended=ended)
        thread.start()
        self.fenced = False
        self._thread, self.delivery = thread, self._opened
        self._notify()

    def _ended(self, thread: DeliveryThread) -> None:
        if self._thread is thread:
            self.fenced = True
            self._notify()

    async def _drain(self) -> None:
        thread, self._thread, self.delivery = self._thread, None, None
        if thread is not None:
            await asyncio.to_thread(thread.close)

    async def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await asyncio.to_thread(opened.close)

    async def _give_back(self) -> None:
        await asyncio.to_thread(self._release)
        log.info("gives share %d back", self.share)


_ACTIONS = {
    ShareAction.RECOVER: HeldShare._recover,
    ShareAction.SERVE: HeldShare._serve,
    ShareAction.DRAIN: HeldShare._drain,
    ShareAction.CLOSE: HeldShare._close,
    ShareAction.RELEASE: HeldShare._give_back,
}
