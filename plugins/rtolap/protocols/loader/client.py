"""Clients of one loader's process: `LoaderClient`, and its twin for triggers, which must not block."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

import httpx
import msgspec

from rtolap.base.closeable import AsyncCloseable, Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Unavailable
from rtolap.protocols.loader.letters import (
    LETTERS_API,
    NEWEST_DEFAULT,
    DropOutcome,
    DropRequest,
    LetterList,
    ReplayOutcome,
    ReplayRequest,
)
from rtolap.protocols.loader.messages import API, PROCESS_API, LoaderProcessStatus, LoaderStatus
from rtolap.protocols.rest.clients import async_service_client, service_client, service_url
from rtolap.protocols.rest.error_responses import error_of

TIMEOUT_S = 10.0


class LoaderClient(Closeable):
    """A client of a loader. It is thread-safe. Raises Unavailable where nobody answers, and the loader's
    errors of the tree."""

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = service_url(url, "a loader")
        self._http = service_client(headers={"Authorization": f"Bearer {token}"}, timeout=timeout_s)

    def status(self) -> LoaderStatus:
        return decode_json(self._send("GET", API), LoaderStatus)

    def process(self) -> LoaderProcessStatus:
        """Return the status of this process alone, of several of one job."""
        return decode_json(self._send("GET", PROCESS_API), LoaderProcessStatus)

    def want(self, change: Literal["pause", "resume", "stop"]) -> LoaderStatus:
        return decode_json(self._send("POST", f"{API}/{change}"), LoaderStatus)

    def dead_letters(self, newest: int = NEWEST_DEFAULT, *, reason: str = "", state: str = "") -> LetterList:
        """Return the newest dead letters with their states: of that reason and in that state, if given."""
        asked = urlencode({"newest": newest, "reason": reason, "state": state})
        return decode_json(self._send("GET", f"{LETTERS_API}?{asked}"), LetterList)

    def replay(self, request: ReplayRequest) -> ReplayOutcome:
        """Load open dead letters, each once. It may be sent again."""
        return decode_json(self._send("POST", f"{LETTERS_API}/replay", request), ReplayOutcome)

    def drop(self, request: DropRequest) -> DropOutcome:
        """Give open dead letters up. It may be sent again."""
        return decode_json(self._send("POST", f"{LETTERS_API}/drop", request), DropOutcome)

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, path: str, request: msgspec.Struct | None = None) -> bytes:
        body = None if request is None else msgspec.json.encode(request)
        try:
            response = self._http.request(method, self.url + path, content=body)
        except httpx.HTTPError as error:
            raise Unavailable(f"the loader at {self.url} does not answer", found=str(error)) from error
        if response.status_code != 200:
            raise error_of(response)
        return response.content


class AsyncLoaderClient(AsyncCloseable):
    """Raises Unavailable where nobody answers, and the loader's errors of the tree."""

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = service_url(url, "a loader")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = async_service_client(headers=headers, timeout=timeout_s)

    async def close(self) -> None:
        await self._http.aclose()

    async def status(self) -> LoaderStatus:
        try:
            response = await self._http.get(self.url + API)
        except httpx.HTTPError as error:
            raise Unavailable(f"the loader at {self.url} does not answer", found=str(error)) from error
        if response.status_code != httpx.codes.OK:
            raise error_of(response)
        return decode_json(response.content, LoaderStatus)
