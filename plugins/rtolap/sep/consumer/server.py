"""The ports of a consumer: region servers connect, ship edits, and are answered when those are delivered.

    server = ConsumerServer(decoder, deliver, allowed=AllowedAddresses(read))
    ports = await server.start("0.0.0.0", [0, 0])     two ports: a region server ships to each in parallel
    ...
    await server.drain(timeout_s=30)                  those at work are answered, then all is closed

Several ports make sense since a region server has one call at work per port at most.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rtolap.base.errors import Unavailable
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Answer, CallHandler, Deliver, EditBounds, SetApart
from rtolap.sep.consumer.connection import Connection
from rtolap.sep.consumer.frame_budget import FrameBudget
from rtolap.sep.consumer.limits import ConsumerSettings, RefusalLog
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.events.decode import EditDecoder

log = logging.getLogger(__name__)

_UNKNOWN_MAX: Final = 64  # connections whose address is being looked up
_PROVEN_IDLE_S: Final = 60.0
_OTHER_DESCRIPTORS: Final = 192  # of the process: Kafka, ZooKeeper, HBase, connections that are looked up


class ConsumerServer:
    """The server that receives edits, for one event loop.

    Args:
        answers: methods beside ReplicateWALEntry, by name.
        bounds: as for `CallHandler`; the server closes them.
        set_apart: as for `CallHandler`.
    """

    def __init__(
        self,
        decoder: EditDecoder,
        deliver: Deliver,
        *,
        allowed: AllowedAddresses,
        settings: ConsumerSettings | None = None,
        metrics: ConsumerMetrics | None = None,
        answers: Mapping[str, Answer] | None = None,
        bounds: EditBounds | None = None,
        set_apart: SetApart | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        self.metrics = metrics or ConsumerMetrics()
        self.budget = FrameBudget(
            self.settings.bytes_in_flight_max,
            self.settings.frame_bytes_max,
            contended_grace_s=self.settings.contended_grace_s,
        )
        self.metrics.follow(self.budget)
        self._executor = ThreadPoolExecutor(self.settings.decode_threads, "sep-decode")
        self.handler = CallHandler(
            decoder,
            deliver,
            self.metrics,
            self._executor,
            default_timeout_s=self.settings.default_timeout_s,
            answers=answers,
            bounds=bounds,
            set_apart=set_apart,
        )
        self._connections_max, self._per_address_max = connection_limits(self.settings)
        self.refusals = RefusalLog()
        self._allowed = allowed
        self._bounds = bounds
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._admitted: dict[str, set[Connection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refresher: asyncio.Task[None] | None = None
        self._draining = False

    async def start(self, host: str, ports: Sequence[int]) -> list[int]:
        """Listen on each port, on any free one for 0; return those that were taken.

        Unavailable: one of them cannot be had.
        """
        await self._allowed.refresh()
        loop = asyncio.get_running_loop()
        self._refresher = loop.create_task(self._allowed.keep_fresh())
        try:
            for port in ports:
                self._listeners.append(await loop.create_server(lambda: Connection(self), host, port))
        except OSError as error:
            await self.drain(0.0)
            raise Unavailable(
                f"port {port} of {host} cannot be had",
                found=error,
                action="name another port, or 0 for any free one",
            ) from error
        return [listener.sockets[0].getsockname()[1] for listener in self._listeners]

    @property
    def calls(self) -> int:
        """Calls that are at work."""
        return sum(connection.calls for connection in self._connections)

    async def drain(self, timeout_s: float) -> None:
        """Take no new calls, wait at most this long until those at work are answered, then close
        everything."""
        self._draining = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.stop_reading()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for connection in tuple(self._connections):
            if connection.calls:
                log.warning("%s: %d calls are not answered any more", connection.address, connection.calls)
                connection.abort("draining")
            else:
                connection.close("draining")
        background = [*self._tasks, *([self._refresher] if self._refresher else [])]
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._bounds is not None:
            await asyncio.to_thread(self._bounds.close)

    # -- of connections ----------------------------------------------------------------------------------

    def opened(self, connection: Connection, address: str) -> None:
        self._connections.add(connection)
        if self._draining:
            connection.close("draining")
        elif self._allowed.allows(address):
            self._take(connection)
        elif len(self._connections) - self._open > _UNKNOWN_MAX:
            connection.close("too_many")
        else:
            self.spawn(self._admit(connection, address))

    def ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._give_up(connection)

    @property
    def _open(self) -> int:
        return sum(map(len, self._admitted.values()))

    def _take(self, connection: Connection) -> None:
        """Admit a connection of an allowed address; where there are as many as may be, one gives way."""
        of_address = self._admitted.get(connection.address, set())
        crowd: list[Connection] = []
        if len(of_address) >= self._per_address_max:
            crowd = list(of_address)
        elif self._open >= self._connections_max:
            crowd = [each for some in self._admitted.values() for each in some]
        if crowd:
            leaving = longest_idle(crowd, time.monotonic())
            if leaving is None:
                connection.close("too_many")
                return
            self._give_up(leaving)
            leaving.abort("crowded")
        self._admitted.setdefault(connection.address, set()).add(connection)
        connection.admit()

    def _give_up(self, connection: Connection) -> None:
        of_address = self._admitted.get(connection.address)
        if of_address is not None:
            of_address.discard(connection)
            if not of_address:
                del self._admitted[connection.address]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, connection: Connection, address: str) -> None:
        if await self._allowed.admits(address):
            self._take(connection)
        else:
            self.refusals.refused(address, "it is none of the allowed addresses")
            connection.close("address")


def longest_idle(connections: Iterable[Connection], now_s: float) -> Connection | None:
    """Return the connection that gives way to a new one, None where none does.

    Connections without a call at work give way, those that were silent for longest first. A proven one does
    only where there is no other, and after a minute of silence.
    """
    idle = [
        each
        for each in connections
        if not each.calls and (not each.is_proven or now_s - each.active_s > _PROVEN_IDLE_S)
    ]
    return min(idle, key=lambda each: (each.is_proven, each.active_s), default=None)


def connection_limits(settings: ConsumerSettings) -> tuple[int, int]:
    """Return (connections, connections of one address), which the process has descriptors for."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    total = settings.connections_max
    if descriptors != resource.RLIM_INFINITY:
        total = max(1, min(total, descriptors - _OTHER_DESCRIPTORS))
    return total, max(1, min(settings.connections_per_address_max, total))
