"""The coordinator's client for an event loop: the calls that triggers poll. See `coordinator_client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import ParamSpec, TypeVar

import httpx
from tenacity import AsyncRetrying, stop_after_delay

from rtolap.base.tls import trust
from rtolap.protocols.coordinator import calls as calls
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.request import PASSING, PAUSE, RETRY_S, TIMEOUT_S, Call, Method, headers
from rtolap.protocols.watermark import calls as watermark_calls

P = ParamSpec("P")
T = TypeVar("T")


class _Awaited(Method[P, T]):
    """A call as a method of the asynchronous client."""

    def __get__(self, client: AsyncCoordinatorClient, owner: type) -> Callable[P, Awaitable[T]]:
        def send(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            return client.send(self.make(*args, **kwargs))

        return send


class AsyncCoordinatorClient:
    """The polling calls, for one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        retry_s: float = RETRY_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._leader = LeaderFinder(urls)
        self._retry_s = retry_s
        self._http = httpx.AsyncClient(
            headers=headers(token), timeout=TIMEOUT_S, transport=transport, verify=trust(None)
        )

    async def __aenter__(self) -> AsyncCoordinatorClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        if call.once:
            return await self._attempt(call)
        stop = stop_after_delay(self._retry_s)
        return await AsyncRetrying(retry=PASSING, stop=stop, wait=PAUSE, reraise=True)(self._attempt, call)

    async def _attempt(self, call: Call[T]) -> T:
        for url in self._leader.attempts():
            with self._leader.asking(url):
                response = await self._http.request(**call.request_at(url))
                if self._leader.answered(url, response):
                    return call.read(response)
        raise self._leader.nobody(str(call))

    queue = _Awaited(calls.queue)
    segment = _Awaited(calls.segment)
    segments = _Awaited(calls.segments)
    watermark = _Awaited(calls.watermark)
    cube = _Awaited(calls.cube)
    receivers = _Awaited(calls.receivers)
    metrics_targets = _Awaited(calls.metrics_targets)
    application_watermarks = _Awaited(watermark_calls.application_watermarks)
    explain_window = _Awaited(watermark_calls.explain_window)
