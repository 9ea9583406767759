"""The coordinator's client: finds the leader among the coordinators, retries while there is none.

`CoordinatorClient` is for services, tasks and the command line; `AsyncCoordinatorClient` has the calls
that triggers poll. Both raise the error that the coordinator raised (`base.errors`), `Unavailable` when
no leader answered within `retry_s`, and never repeat a request that was refused.

Every call may be repeated safely: a second `create` of an equal definition, `promote` of a promoted
build, … change nothing, and a second `start_build` only takes the right of promotion from the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from tenacity import (
    AsyncRetrying,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential_jitter,
)

from rtolap.base.errors import CommitConflict, CommitUnknown, RtolapError, SessionLost, Unavailable
from rtolap.wire import coordinator as wire
from rtolap.wire.leader_finder import LeaderFinder

T = TypeVar("T")
Body = dict[str, object] | None
Params = dict[str, str]

RETRY_S = 20.0  # longer than a session time-out plus an election
TIMEOUT_S = 10.0
HEARTBEAT_TIMEOUT_S = 2.0

_PASSING = (Unavailable, SessionLost, CommitUnknown, CommitConflict)
_DEFINITION: TypeAdapter[wire.Definition] = TypeAdapter(wire.Definition)
_NAMES: TypeAdapter[list[str]] = TypeAdapter(list[str])
_CUBES: TypeAdapter[list[wire.CubeStatus]] = TypeAdapter(list[wire.CubeStatus])
_SEGMENTS: TypeAdapter[list[wire.SegmentInfo]] = TypeAdapter(list[wire.SegmentInfo])
_RECEIVERS: TypeAdapter[list[wire.ReceiverInfo]] = TypeAdapter(list[wire.ReceiverInfo])
_REPLICA_SETS: TypeAdapter[list[wire.ReplicaSetInfo]] = TypeAdapter(list[wire.ReplicaSetInfo])
_NOTHING: TypeAdapter[None] = TypeAdapter(None)


def _path(*parts: str) -> str:
    return wire.API + "/" + "/".join(quote(part, safe="") for part in parts)


def _build_path(cube: str, segment: str, build_id: str, verb: str) -> str:
    return _path("cubes", cube, "segments", segment, "builds", build_id, verb)


def _read(response: httpx.Response, kind: TypeAdapter[T]) -> T:
    try:
        return kind.validate_json(response.content)
    except ValidationError as error:
        raise RtolapError(
            f"{response.request.method} {response.request.url} gave an answer this client cannot read",
            found=str(error),
            action="run client and coordinator in the same version",
        ) from error


class CoordinatorClient:
    """Synchronous and thread-safe. `urls` are base URLs of all coordinators, in any order."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._leader = LeaderFinder(urls)
        self._retry_s = retry_s
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            follow_redirects=False,
            transport=transport,
        )

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _once(
        self, method: str, path: str, body: Body, params: Params, timeout_s: float | None
    ) -> httpx.Response:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        for url in self._leader.attempts():
            try:
                response = self._http.request(method, url + path, json=body, params=params, timeout=timeout)
            except httpx.TransportError as error:
                self._leader.failed(url, error)
                continue
            if self._leader.answered(url, response):
                return response
        raise self._leader.nobody(f"{method} {path}")

    def _call(
        self,
        method: str,
        path: str,
        kind: TypeAdapter[T],
        body: Body = None,
        params: Params | None = None,
        *,
        retry: bool = True,
        timeout_s: float | None = None,
    ) -> T:
        if not retry:
            return _read(self._once(method, path, body, params or {}, timeout_s), kind)
        retrying = Retrying(
            retry=retry_if_exception_type(_PASSING),
            stop=stop_after_delay(self._retry_s),
            wait=wait_exponential_jitter(initial=0.1, max=1.0),
            reraise=True,
        )
        return retrying(lambda: _read(self._once(method, path, body, params or {}, timeout_s), kind))

    def _model(self, method: str, path: str, kind: type[T], body: Body = None) -> T:
        return self._call(method, path, TypeAdapter(kind), body)

    # -- cluster ----------------------------------------------------------------------------------------

    def health(self, url: str) -> wire.Health:
        """One coordinator's own word, leader or not. One attempt."""
        try:
            response = self._http.get(url.rstrip("/") + "/health")
        except httpx.TransportError as error:
            raise Unavailable(f"coordinator {url} does not answer", found=str(error)) from error
        return _read(response, TypeAdapter(wire.Health))

    def cluster(self) -> wire.ClusterInfo:
        return self._model("GET", _path("cluster"), wire.ClusterInfo)

    def receivers(self) -> list[wire.ReceiverInfo]:
        return self._call("GET", _path("receivers"), _RECEIVERS)

    def replica_sets(self) -> list[wire.ReplicaSetInfo]:
        return self._call("GET", _path("replica-sets"), _REPLICA_SETS)

    def put_replica_set(self, name: str, receivers: Sequence[str]) -> wire.ReplicaSetInfo:
        body: Body = {"receivers": list(receivers)}
        return self._model("PUT", _path("replica-sets", name), wire.ReplicaSetInfo, body)

    def heartbeat(self, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        """One attempt, short: the next heartbeat comes in a second anyway."""
        return self._call(
            "POST",
            _path("receivers", request.receiver_id, "heartbeat"),
            TypeAdapter(wire.HeartbeatResponse),
            request.model_dump(mode="json"),
            retry=False,
            timeout_s=HEARTBEAT_TIMEOUT_S,
        )

    # -- definitions ------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        return self._call("GET", _path("tables"), _NAMES)

    def table(self, name: str) -> wire.Definition:
        return self._call("GET", _path("tables", name), _DEFINITION)

    def create_table(self, definition: wire.Definition) -> None:
        self._call("POST", _path("tables"), _NOTHING, definition)

    def drop_table(self, name: str) -> None:
        self._call("DELETE", _path("tables", name), _NOTHING)

    def lookups(self) -> list[str]:
        return self._call("GET", _path("lookups"), _NAMES)

    def lookup(self, name: str) -> wire.Definition:
        return self._call("GET", _path("lookups", name), _DEFINITION)

    def create_lookup(self, definition: wire.Definition) -> None:
        self._call("POST", _path("lookups"), _NOTHING, definition)

    def drop_lookup(self, name: str) -> None:
        self._call("DELETE", _path("lookups", name), _NOTHING)

    # -- cubes ------------------------------------------------------------------------------------------

    def cubes(self) -> list[wire.CubeStatus]:
        return self._call("GET", _path("cubes"), _CUBES)

    def cube(self, name: str) -> wire.CubeStatus:
        return self._model("GET", _path("cubes", name), wire.CubeStatus)

    def create_cube(self, definition: wire.Definition) -> None:
        self._call("POST", _path("cubes"), _NOTHING, definition)

    def drop_cube(self, name: str) -> None:
        self._call("DELETE", _path("cubes", name), _NOTHING)

    def enable_cube(self, name: str, assigner: str | None = None) -> wire.CubeStatus:
        return self._model("POST", _path("cubes", name, "enable"), wire.CubeStatus, {"assigner": assigner})

    def disable_cube(self, name: str) -> wire.CubeStatus:
        return self._model("POST", _path("cubes", name, "disable"), wire.CubeStatus)

    def pause_cube(self, name: str) -> wire.CubeStatus:
        return self._model("POST", _path("cubes", name, "pause"), wire.CubeStatus)

    def resume_cube(self, name: str) -> wire.CubeStatus:
        return self._model("POST", _path("cubes", name, "resume"), wire.CubeStatus)

    def watermark(self, cube: str) -> wire.WatermarkInfo:
        return self._model("GET", _path("cubes", cube, "watermark"), wire.WatermarkInfo)

    def purge(self, cube: str, before_ms: int) -> wire.PurgeResult:
        return self._model("POST", _path("cubes", cube, "purge"), wire.PurgeResult, {"before_ms": before_ms})

    def retention(self, cube: str) -> wire.PurgeResult:
        """Purge what the cube's own retention policy says is too old, by its low watermark."""
        return self._model("POST", _path("cubes", cube, "retention"), wire.PurgeResult)

    def cleanup(self, cube: str) -> wire.CleanupResult:
        return self._model("POST", _path("cubes", cube, "cleanup"), wire.CleanupResult)

    # -- segments and builds ----------------------------------------------------------------------------

    def segments(
        self, cube: str, *, state: str | None = None, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[wire.SegmentInfo]:
        """Ordered by start; those in `state` that overlap `[start_ms, end_ms)`."""
        asked = {"state": state, "start_ms": start_ms, "end_ms": end_ms}
        params = {name: str(value) for name, value in asked.items() if value is not None}
        return self._call("GET", _path("cubes", cube, "segments"), _SEGMENTS, params=params)

    def segment(self, cube: str, segment: str) -> wire.SegmentInfo:
        return self._model("GET", _path("cubes", cube, "segments", segment), wire.SegmentInfo)

    def queue(self) -> wire.Queue:
        return self._model("GET", _path("queue"), wire.Queue)

    def start_build(self, cube: str, segment: str) -> wire.BuildSpec:
        return self._model("POST", _path("cubes", cube, "segments", segment, "builds"), wire.BuildSpec)

    def promote(self, cube: str, segment: str, build_id: str) -> wire.SegmentInfo:
        """Raises Refused where an earlier segment has to be promoted first: ask again later."""
        return self._model("POST", _build_path(cube, segment, build_id, "promote"), wire.SegmentInfo)

    def fail_build(self, cube: str, segment: str, build_id: str, error: str) -> wire.SegmentInfo:
        path = _build_path(cube, segment, build_id, "fail")
        return self._model("POST", path, wire.SegmentInfo, {"error": error[:4000]})

    def requeue(self, cube: str, segment: str) -> wire.SegmentInfo:
        return self._model("POST", _path("cubes", cube, "segments", segment, "requeue"), wire.SegmentInfo)

    def close_segment(self, cube: str, segment: str) -> wire.SegmentInfo:
        """Ask the leaders to close this segment and all before it, without waiting for the watermark."""
        return self._model("POST", _path("cubes", cube, "segments", segment, "close"), wire.SegmentInfo)


class AsyncCoordinatorClient:
    """The polling calls, for one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._leader = LeaderFinder(urls)
        self._retry_s = retry_s
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            follow_redirects=False,
            transport=transport,
        )

    async def __aenter__(self) -> AsyncCoordinatorClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _once(self, path: str) -> httpx.Response:
        for url in self._leader.attempts():
            try:
                response = await self._http.get(url + path)
            except httpx.TransportError as error:
                self._leader.failed(url, error)
                continue
            if self._leader.answered(url, response):
                return response
        raise self._leader.nobody(f"GET {path}")

    async def _get(self, path: str, kind: TypeAdapter[T]) -> T:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_PASSING),
            stop=stop_after_delay(self._retry_s),
            wait=wait_exponential_jitter(initial=0.1, max=1.0),
            reraise=True,
        )

        async def attempt() -> T:
            return _read(await self._once(path), kind)

        return await retrying(attempt)

    async def queue(self) -> wire.Queue:
        return await self._get(_path("queue"), TypeAdapter(wire.Queue))

    async def segment(self, cube: str, segment: str) -> wire.SegmentInfo:
        return await self._get(_path("cubes", cube, "segments", segment), TypeAdapter(wire.SegmentInfo))

    async def segments(self, cube: str) -> list[wire.SegmentInfo]:
        return await self._get(_path("cubes", cube, "segments"), _SEGMENTS)

    async def watermark(self, cube: str) -> wire.WatermarkInfo:
        return await self._get(_path("cubes", cube, "watermark"), TypeAdapter(wire.WatermarkInfo))

    async def cube(self, name: str) -> wire.CubeStatus:
        return await self._get(_path("cubes", name), TypeAdapter(wire.CubeStatus))

    async def receivers(self) -> list[wire.ReceiverInfo]:
        return await self._get(_path("receivers"), _RECEIVERS)
