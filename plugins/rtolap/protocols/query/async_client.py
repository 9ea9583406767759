"""Client of the query service for servers whose event loop must not block, and that ask for persons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from rtolap.base.closeable import AsyncCloseable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import TooLarge, Unavailable
from rtolap.base.tls import trust
from rtolap.protocols.query.client import DEADLINE_GRACE_S
from rtolap.protocols.query.messages import (
    ARROW_STREAM,
    ON_BEHALF_HEADER,
    SESSION_TOKEN_HEADER,
    QueryAnswer,
)
from rtolap.protocols.rest.clients import async_service_client, service_url
from rtolap.protocols.rest.error_responses import error_of


class Bounds(NamedTuple):
    """The bounds of an answer. `rows_max` cuts it; what goes beyond the others is an error."""

    timeout_ms: int
    rows_max: int
    bytes_max: int


class Answered(NamedTuple):
    """The bytes of an answer, and the token of its session."""

    content: bytes
    session_token: str

    def message(self) -> QueryAnswer:
        return decode_json(self.content, QueryAnswer)


class AsyncQueryClient(AsyncCloseable):
    """A client that asks with the cluster's token, for a person or for itself.

    A call that is cancelled closes its connection, by which the service ends the statement. Raises the
    service's errors of the tree, Unavailable where it does not answer, TooLarge beyond `bytes_max`.

    `on_behalf_of`: as `service:name`; empty: the service itself asks. A query service that is too old to tell
    persons apart refuses the request, since it does not know `rows_max` either.
    """

    def __init__(self, url: str, token: str, *, on_behalf_of: str = "", ca_file: Path | None = None) -> None:
        self.url = service_url(url, "a query service")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if on_behalf_of:
            headers[ON_BEHALF_HEADER] = quote(on_behalf_of)
        self._http = async_service_client(headers=headers, verify=trust(ca_file))

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(
        self,
        sql: str,
        bounds: Bounds,
        *,
        parameters: Sequence[Any] = (),
        session_token: str = "",
        arrow: bool = False,
    ) -> Answered:
        """Return the answer in JSON, or as an Arrow stream."""
        body = {
            "sql": sql,
            "parameters": list(parameters),
            "timeout_ms": bounds.timeout_ms,
            "rows_max": bounds.rows_max,
        }
        headers = {"Accept": ARROW_STREAM} if arrow else {}
        if session_token:
            headers[SESSION_TOKEN_HEADER] = session_token
        seconds = bounds.timeout_ms / 1000 + DEADLINE_GRACE_S
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(
                    "POST",
                    f"{self.url}/api/v1/query",
                    content=msgspec.json.encode(body),
                    headers=headers,
                    timeout=seconds,
                ) as response,
            ):
                content = await _read(response, bounds.bytes_max)
                if response.status_code != httpx.codes.OK:
                    raise error_of(response)
                return Answered(content, response.headers.get(SESSION_TOKEN_HEADER, ""))
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unavailable(
                f"the query service {self.url} does not answer",
                found=str(error) or type(error).__name__,
                action="start it with `rtolap query serve`",
            ) from error


async def _read(response: httpx.Response, bytes_max: int) -> bytes:
    """Return the content, or make it the response's where that is an error."""
    if response.status_code != httpx.codes.OK:
        return await response.aread()
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > bytes_max:
            raise TooLarge(
                "the answer is too large",
                expected=f"at most {bytes_max >> 10} KiB",
                action="ask for fewer columns or rows",
            )
    return bytes(content)
