"""Clients of an agent: one that blocks (operators, command line) and one that does not (triggers)."""

from __future__ import annotations

import httpx
import msgspec

from rtolap.base.closeable import AsyncCloseable, Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.protocols.agent.messages import (
    GenerationRef,
    LastGeneration,
    ProcessList,
    ProcessSpec,
    ProcessStatus,
    Shutdown,
    check_key,
)
from rtolap.protocols.rest.clients import async_service_client, service_client, service_url
from rtolap.protocols.rest.error_responses import named_error

# Stopping the old process comes before the answer to PUT and DELETE; the rest is immediate.
STOP_MARGIN_S = 15.0
CLUSTER_MARGIN_S = 180.0  # three starts of Java on a busy host
CALL_TIMEOUT_S = 10.0


class _Call(msgspec.Struct, frozen=True):
    method: str
    path: str
    body: bytes | None = None
    params: dict[str, str] = {}
    timeout_s: float = CALL_TIMEOUT_S


def _process(key: str, tail: str = "") -> str:
    return f"/api/v1/processes/{check_key(key)}{tail}"


def _ensure(key: str, spec: ProcessSpec) -> _Call:
    # The process that is replaced may have asked for a longer grace than the new one: allow for both.
    timeout_s = 2 * spec.stop_grace_s + 3 * STOP_MARGIN_S
    if (
        "cluster" in spec.argv
    ):  # the deploy mode: the process before may have a driver to be killed on a cluster
        timeout_s += CLUSTER_MARGIN_S
    return _Call("PUT", _process(key), msgspec.json.encode(spec), timeout_s=timeout_s)


def _stop(key: str, generation: int, timeout_s: float) -> _Call:
    return _Call("DELETE", _process(key), params={"generation": str(generation)}, timeout_s=timeout_s)


def _post(key: str, verb: str, generation: int) -> _Call:
    return _Call("POST", _process(key, f"/{verb}"), msgspec.json.encode(GenerationRef(generation)))


def _headers(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _checked(response: httpx.Response) -> bytes:
    if response.is_success:
        return response.content
    raise named_error(response) or RtolapError(
        f"agent answered {response.request.method} {response.request.url.path} with an unknown error",
        expected="a JSON error",
        found=f"HTTP {response.status_code} {response.text[:200]!r}",
    )


def _unavailable(base_url: str, call: _Call, error: httpx.TransportError) -> Unavailable:
    return Unavailable(
        f"agent at {base_url} did not answer {call.method} {call.path}",
        found=f"{type(error).__name__}: {error}",
        action="see whether `rtolap agent serve` runs on that host",
    )


class AgentClient(Closeable):
    """Blocking client; close it or use it as a context manager.

    Raises Unavailable when the agent does not answer, Refused for a generation that is too low, NotFound
    for an unknown key, DefinitionError for a command that is not allowed.
    """

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = service_url(base_url, "an agent")
        self._http = service_client(base_url=self._base_url, headers=_headers(token))

    def close(self) -> None:
        self._http.close()

    def ensure(self, key: str, spec: ProcessSpec) -> ProcessStatus:
        return self._status(_ensure(key, spec))

    def get(self, key: str) -> ProcessStatus:
        return self._status(_Call("GET", _process(key)))

    def processes(self) -> tuple[ProcessStatus, ...]:
        return decode_json(self._send(_Call("GET", "/api/v1/processes")), ProcessList).processes

    def generation(self, key: str) -> int:
        """Return the highest generation that the agent has ever seen for the key, 0 for none."""
        return self.last(key).generation

    def last(self, key: str) -> LastGeneration:
        """Return that generation with its labels, even if its end was acknowledged."""
        data = self._send(_Call("GET", _process(key, "/generation")))
        return decode_json(data, LastGeneration)

    def renew(self, key: str, generation: int) -> ProcessStatus:
        return self._status(_post(key, "lease", generation))

    def acknowledge(self, key: str, generation: int) -> ProcessStatus:
        return self._status(_post(key, "acknowledge", generation))

    def stop(self, key: str, generation: int, *, timeout_s: float = 90.0) -> ProcessStatus:
        return self._status(_stop(key, generation, timeout_s))

    def log(self, key: str, bytes_max: int = 65_536) -> str:
        call = _Call("GET", _process(key, "/log"), params={"bytes": str(bytes_max)})
        return self._send(call).decode("utf-8", "replace")

    def shutdown(self, *, stop_processes: bool = True, timeout_s: float = 120.0) -> None:
        body = msgspec.json.encode(Shutdown(stop_processes))
        self._send(_Call("POST", "/api/v1/shutdown", body, timeout_s=timeout_s))

    def _status(self, call: _Call) -> ProcessStatus:
        return decode_json(self._send(call), ProcessStatus)

    def _send(self, call: _Call) -> bytes:
        try:
            response = self._http.request(
                call.method, call.path, content=call.body, params=call.params, timeout=call.timeout_s
            )
        except httpx.TransportError as error:
            raise _unavailable(self._base_url, call, error) from error
        return _checked(response)


class AsyncAgentClient(AsyncCloseable):
    """The calls that a trigger makes, without blocking its loop."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = service_url(base_url, "an agent")
        self._http = async_service_client(base_url=self._base_url, headers=_headers(token))

    async def close(self) -> None:
        await self._http.aclose()

    async def processes(self) -> tuple[ProcessStatus, ...]:
        data = await self._send(_Call("GET", "/api/v1/processes"))
        return decode_json(data, ProcessList).processes

    async def get(self, key: str) -> ProcessStatus:
        return await self._status(_Call("GET", _process(key)))

    async def renew(self, key: str, generation: int) -> ProcessStatus:
        return await self._status(_post(key, "lease", generation))

    async def stop(self, key: str, generation: int, *, timeout_s: float = 90.0) -> ProcessStatus:
        return await self._status(_stop(key, generation, timeout_s))

    async def _status(self, call: _Call) -> ProcessStatus:
        return decode_json(await self._send(call), ProcessStatus)

    async def _send(self, call: _Call) -> bytes:
        try:
            response = await self._http.request(
                call.method, call.path, content=call.body, params=call.params, timeout=call.timeout_s
            )
        except httpx.TransportError as error:
            raise _unavailable(self._base_url, call, error) from error
        return _checked(response)
