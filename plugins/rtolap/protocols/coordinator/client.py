"""The coordinator's clients: they find the leader among the coordinators, or the owner of an application, and
retry while there is none.

`CoordinatorClient` is for services, tasks and the command line, `AsyncCoordinatorClient` for triggers. Their
methods are those of `calls`, under the same names. Both raise the error that the coordinator raised
(`base.errors`), `Unavailable` when no leader answered within `retry_s`, and never repeat a request that was
refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

import httpx
from tenacity import AsyncRetrying, Retrying, stop_after_delay

from rtolap.base.closeable import AsyncCloseable, Closeable
from rtolap.base.errors import Unavailable
from rtolap.protocols.coordinator import calls
from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.rest.clients import async_service_client, service_client
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.proven import ProvenAuth
from rtolap.protocols.rest.request import PASSING, PAUSE, RETRY_S, TIMEOUT_S, Call, Method, headers

__all__ = ["AsyncCoordinatorClient", "CoordinatorClient"]

P = ParamSpec("P")
T = TypeVar("T")


class _Sent(Method[P, T]):
    """A call as a method of the synchronous client."""

    def __get__(self, client: CoordinatorClient, owner: type) -> Callable[P, T]:
        def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.send(self.make(*args, **kwargs))

        return send


class CoordinatorClient(Closeable):
    """Synchronous and thread-safe. `urls` are base URLs of all coordinators, in any order.

    `learnt`: the URLs were read in ZooKeeper and not configured. The token is then not sent: coordinators and
    client prove to each other that they know it, and one that does not is passed by.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        learnt: bool = False,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._leader = LeaderFinder(urls)
        self._retry_s = retry_s
        self._http = service_client(
            headers={} if learnt else headers(token),
            auth=ProvenAuth(token) if learnt else None,
            timeout=timeout_s,
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        if call.once:
            return self._attempt(call)
        stop = stop_after_delay(self._retry_s)
        answer: T = Retrying(retry=PASSING, stop=stop, wait=PAUSE, reraise=True)(self._attempt, call)
        return answer

    def health(self, url: str) -> wire.Health:
        """Return the health of the coordinator at `url`, whether it leads or not. Attempts it once."""
        call = calls.health()
        try:
            return call.read(self._http.request(**call.request_at(url.rstrip("/"))))
        except httpx.TransportError as error:
            raise Unavailable(f"coordinator {url} does not answer", found=str(error)) from error

    def _attempt(self, call: Call[T]) -> T:
        for url in self._leader.attempts(call.subject):
            with self._leader.asking(url, call.subject):
                response = self._http.request(**call.request_at(url))
                if self._leader.answered(url, response, call.subject):
                    return call.read(response)
        raise self._leader.nobody(str(call))

    cluster = _Sent(calls.cluster)
    receivers = _Sent(calls.receivers)
    metrics_targets = _Sent(calls.metrics_targets)
    replica_sets = _Sent(calls.replica_sets)
    put_replica_set = _Sent(calls.put_replica_set)
    drain_replica_set = _Sent(calls.drain_replica_set)
    drain_progress = _Sent(calls.drain_progress)
    remove_replica_set = _Sent(calls.remove_replica_set)
    remove_receiver = _Sent(calls.remove_receiver)
    heartbeat = _Sent(calls.heartbeat)
    tables = _Sent(calls.tables)
    table = _Sent(calls.table)
    create_table = _Sent(calls.create_table)
    drop_table = _Sent(calls.drop_table)
    lookups = _Sent(calls.lookups)
    lookup = _Sent(calls.lookup)
    create_lookup = _Sent(calls.create_lookup)
    drop_lookup = _Sent(calls.drop_lookup)
    cubes = _Sent(calls.cubes)
    cube = _Sent(calls.cube)
    create_cube = _Sent(calls.create_cube)
    drop_cube = _Sent(calls.drop_cube)
    enable_cube = _Sent(calls.enable_cube)
    disable_cube = _Sent(calls.disable_cube)
    pause_cube = _Sent(calls.pause_cube)
    resume_cube = _Sent(calls.resume_cube)
    alter_cube = _Sent(calls.alter_cube)
    reassign = _Sent(calls.reassign)
    cancel_move = _Sent(calls.cancel_move)
    undo_move = _Sent(calls.undo_move)
    watermark = _Sent(calls.watermark)
    purge = _Sent(calls.purge)
    retention = _Sent(calls.retention)
    cleanup = _Sent(calls.cleanup)
    segments = _Sent(calls.segments)
    segment_columns = _Sent(calls.segment_columns)
    segment_cuboids = _Sent(calls.segment_cuboids)
    segment = _Sent(calls.segment)
    queue = _Sent(calls.queue)
    start_build = _Sent(calls.start_build)
    promote = _Sent(calls.promote)
    fail_build = _Sent(calls.fail_build)
    requeue = _Sent(calls.requeue)
    close_segment = _Sent(calls.close_segment)
    accept_loss = _Sent(calls.accept_loss)
    plan_batch = _Sent(calls.plan_batch)
    apply_batch = _Sent(calls.apply_batch)
    batch_progress = _Sent(calls.batch_progress)
    plan_merges = _Sent(calls.plan_merges)
    commit_merge = _Sent(calls.commit_merge)
    applications = _Sent(calls.applications)
    application = _Sent(calls.application)
    create_application = _Sent(calls.create_application)
    change_application = _Sent(calls.change_application)
    drop_application = _Sent(calls.drop_application)
    application_watermarks = _Sent(calls.application_watermarks)
    application_hosts = _Sent(calls.application_hosts)
    application_units = _Sent(calls.application_units)
    application_history = _Sent(calls.application_history)
    change_hosts = _Sent(calls.change_hosts)
    explain_window = _Sent(calls.explain_window)
    application_completeness = _Sent(calls.application_completeness)
    approve_windows = _Sent(calls.approve_windows)


class _Awaited(Method[P, T]):
    """A call as a method of the asynchronous client."""

    def __get__(self, client: AsyncCoordinatorClient, owner: type) -> Callable[P, Awaitable[T]]:
        def send(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            return client.send(self.make(*args, **kwargs))

        return send


class AsyncCoordinatorClient(AsyncCloseable):
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
        self._http = async_service_client(headers=headers(token), timeout=TIMEOUT_S, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        if call.once:
            return await self._attempt(call)
        stop = stop_after_delay(self._retry_s)
        return await AsyncRetrying(retry=PASSING, stop=stop, wait=PAUSE, reraise=True)(self._attempt, call)

    async def _attempt(self, call: Call[T]) -> T:
        for url in self._leader.attempts(call.subject):
            with self._leader.asking(url, call.subject):
                response = await self._http.request(**call.request_at(url))
                if self._leader.answered(url, response, call.subject):
                    return call.read(response)
        raise self._leader.nobody(str(call))

    queue = _Awaited(calls.queue)
    segment = _Awaited(calls.segment)
    segments = _Awaited(calls.segments)
    segment_columns = _Awaited(calls.segment_columns)
    segment_cuboids = _Awaited(calls.segment_cuboids)
    watermark = _Awaited(calls.watermark)
    cube = _Awaited(calls.cube)
    receivers = _Awaited(calls.receivers)
    metrics_targets = _Awaited(calls.metrics_targets)
    application_watermarks = _Awaited(calls.application_watermarks)
    explain_window = _Awaited(calls.explain_window)
    batch_progress = _Awaited(calls.batch_progress)
