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
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rtolap.base.errors import Unavailable
from rtolap.sep.consumer.allowed_addresses import AllowedAddresses
from rtolap.sep.consumer.calls import Answer, CallHandler, Deliver
from rtolap.sep.consumer.connection import Connection
from rtolap.sep.consumer.limits import ByteBudget, ConsumerSettings, RefusalLog
from rtolap.sep.consumer.metrics import ConsumerMetrics
from rtolap.sep.events.decode import EditDecoder

log = logging.getLogger(__name__)


class ConsumerServer:
    """For one event loop. `answers`: methods beside ReplicateWALEntry, by their names."""

    def __init__(
        self,
        decoder: EditDecoder,
        deliver: Deliver,
        *,
        allowed: AllowedAddresses,
        settings: ConsumerSettings | None = None,
        metrics: ConsumerMetrics | None = None,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        self.metrics = metrics or ConsumerMetrics()
        self.budget = ByteBudget(self.settings.bytes_in_flight_max)
        self.metrics.follow(self.budget)
        self._executor = ThreadPoolExecutor(self.settings.decode_threads, "sep-decode")
        self.handler = CallHandler(
            decoder,
            deliver,
            self.metrics,
            self._executor,
            default_timeout_s=self.settings.default_timeout_s,
            answers=answers,
        )
        self.refusals = RefusalLog()
        self._allowed = allowed
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
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
        """Take no new calls, let those at work be answered, at most so long, then close everything."""
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

    # -- of connections ----------------------------------------------------------------------------------

    def opened(self, connection: Connection, address: str) -> None:
        self._connections.add(connection)
        if self._draining:
            connection.close("draining")
        elif len(self._connections) > self.settings.connections_max:
            connection.close("too_many")
        elif self._allowed.allows(address):
            connection.admit()
        else:
            self.spawn(self._admit(connection, address))

    def ended(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, connection: Connection, address: str) -> None:
        if await self._allowed.admits(address):
            connection.admit()
        else:
            self.refusals.refused(address, "it is none of the allowed addresses")
            connection.close("address")
