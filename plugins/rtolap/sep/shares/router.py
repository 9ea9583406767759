"""The way of a call's events to the consumers that hold their shares.

    1. the call is divided by the shares of its rows
    2. each part goes to the holder of its share, here or in another process, all at the same time
    3. a holder that has given its share back names nobody: the part waits until ZooKeeper shows the next one
    4. the call is answered well when all parts are durable; else the region server sends all of it again,
       and holders recognise what they have delivered

A part whose holder loses the share while it works on it goes to the next holder. The one before can write
nothing once its successor has the journal, and what it wrote by then its successor reads there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import pyarrow as pa

from rtolap.base.errors import NotLeader, Unanswered, Unavailable
from rtolap.protocols.capture.client import PartCall
from rtolap.protocols.capture.messages import PartHead
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.shares.division import divide
from rtolap.sep.shares.endpoint import TakesParts

ROUTE_WAIT_S: Final = 30.0  # for a holder of a share; a session and the reading of a journal take seconds
CALLS_PER_CONSUMER_MAX: Final = 16  # more wait here, where the frame budget bounds their bytes
AGAIN_S: Final = 1.0  # between tries of a holder that does not answer, while ZooKeeper shows no other


class Sends(Protocol):
    """The client of another consumer; `protocols.capture.client.CaptureClient` is one."""

    def deliver(
        self, head: PartHead, events: pa.RecordBatch, cells: pa.RecordBatch, call: PartCall
    ) -> None: ...


class Router:
    """Sends parts to the holders of their shares, for one event loop. Close it.

    Args:
        own: the shares of this process, all of them: one that is not held here raises NotOwner.
        client: returns the client of an address.
        own_address: the address of this process among the routes.
    """

    def __init__(
        self,
        own: Mapping[int, TakesParts],
        client: Callable[[str], Sends],
        *,
        cluster_id: str,
        own_address: str,
    ) -> None:
        self.forwarded_events = 0
        self.forwarded_parts = 0
        self._own = own
        self._client = client
        self._cluster_id = cluster_id
        self._own_address = own_address
        self._routes: dict[int, str | None] = {}
        self._changed = asyncio.Event()
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._executor = ThreadPoolExecutor(64, "sep-forward")

    def update(self, routes: Mapping[int, str | None]) -> None:
        """Take the addresses of the holders as ZooKeeper shows them."""
        if self._routes != routes:
            self._routes = dict(routes)
            self.wake()

    def wake(self) -> None:
        """Let parts that wait look for their holder again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None:
        """Return once all events are durable. `deadline_s`: by time.monotonic(). Raises the first error, once
        all parts have ended."""
        await self._send_all(batch, deadline_s, "")

    async def set_apart(self, batch: EditBatch, reason: str) -> None:
        await self._send_all(batch, time.monotonic() + ROUTE_WAIT_S, reason)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _send_all(self, batch: EditBatch, deadline_s: float, apart: str) -> None:
        parts = [self._send(share, part, deadline_s, apart) for share, part in divide(batch, len(self._own))]
        for result in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _send(self, share: int, part: EditBatch, deadline_s: float, apart: str) -> None:
        until_s = min(deadline_s, time.monotonic() + ROUTE_WAIT_S)
        while True:
            changed, address = self._changed, self._routes.get(share)
            try:
                if address is None:
                    raise Unanswered(f"no consumer holds share {share} now")
                if address == self._own_address:
                    await self._deliver_here(share, part, deadline_s, apart)
                else:
                    await self._forward(share, part, deadline_s, apart, address, changed)
                return
            except (NotLeader, Unanswered) as error:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise Unavailable(
                        f"{part.num_events} events of share {share} have no consumer that delivers them",
                        found=error,
                        action="look at `rtolap sep describe`: each share needs a holder",
                    ) from error
                await _first(changed.wait(), min(left_s, AGAIN_S))

    async def _deliver_here(self, share: int, part: EditBatch, deadline_s: float, apart: str) -> None:
        if apart:
            await self._own[share].set_apart(part, apart)
        else:
            await self._own[share].deliver(part, deadline_s)

    async def _forward(
        self,
        share: int,
        part: EditBatch,
        deadline_s: float,
        apart: str,
        address: str,
        changed: asyncio.Event,
    ) -> None:
        """Send the part to another consumer. Raises Unanswered, too, where another one holds the share
        meanwhile."""
        async with self._turns.setdefault(address, asyncio.Semaphore(CALLS_PER_CONSUMER_MAX)):
            remaining_ms = int((deadline_s - time.monotonic()) * 1000)
            if remaining_ms <= 0:
                raise Unavailable("the call's time was over before its events could begin")
            head = PartHead(self._cluster_id, share, remaining_ms, apart)
            call, client = PartCall(), self._client(address)
            loop = asyncio.get_running_loop()
            sending = loop.run_in_executor(
                self._executor, client.deliver, head, part.events, part.cells, call
            )
            try:
                while not sending.done():
                    moved = asyncio.ensure_future(changed.wait())
                    await asyncio.wait((sending, moved), return_when=asyncio.FIRST_COMPLETED)
                    moved.cancel()
                    if not sending.done() and self._routes.get(share) != address:
                        raise Unanswered(f"share {share} has another holder now")
                    changed = self._changed
                await sending
            except BaseException:
                call.cancel()
                sending.add_done_callback(_retrieved)
                raise
            self.forwarded_parts += 1
            self.forwarded_events += part.num_events


def _retrieved(sending: asyncio.Future[None]) -> None:
    """Take the error of a call that nobody waits for any more."""
    if not sending.cancelled():
        sending.exception()


async def _first(wait: Awaitable[object], timeout_s: float) -> None:
    try:
        await asyncio.wait_for(wait, timeout_s)
    except TimeoutError:
        return
