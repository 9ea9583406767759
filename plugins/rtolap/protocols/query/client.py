"""Client of the query service over HTTP; `rtolap.dbapi` is the PEP 249 module over it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Unavailable
from rtolap.base.tls import trust
from rtolap.protocols.query.messages import (
    ON_BEHALF_HEADER,
    SESSION_TOKEN_HEADER,
    SESSION_TOKEN_SEPARATOR,
    HistoryCacheReport,
    QueryAnswer,
)
from rtolap.protocols.rest.clients import service_client, service_url
from rtolap.protocols.rest.error_responses import error_of

DEADLINE_GRACE_S = 5.0  # the service gives up by itself; its words are better than a broken call


class QueryClient(Closeable):
    """A client of the query service. It is thread-safe. It takes a token, or a user and a password. Raises
    the service's errors of the tree.

    `database`: of tables that statements name without one; None: the one of cubes and lookups. `engine`: what
    reads history, auto, local or spark; None: the service chooses. `ca_file`: PEM of whom an https address is
    trusted to; None: the system's. `on_behalf_of`: for whom a service asks that has the token, as
    `service:name`; empty: the client itself.

    What was answered once is in every later answer of the client: `session_token` carries that from service
    to service. Give that of another client to begin where it is.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str = "",
        timeout_ms: int = 60_000,
        database: str | None = None,
        engine: str | None = None,
        ca_file: Path | None = None,
        session_token: str = "",
        on_behalf_of: str = "",
    ) -> None:
        self.url = service_url(url, "a query service")
        self.timeout_ms = timeout_ms
        self.database = database
        self.engine = engine
        self._lock = threading.Lock()
        self._tokens = _separate(session_token)  # more than one where threads were answered beside each other
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if on_behalf_of:
            headers[ON_BEHALF_HEADER] = quote(on_behalf_of)
        auth = httpx.BasicAuth(user, password) if user is not None and token is None else None
        self._http = service_client(headers=headers, auth=auth, verify=trust(ca_file))

    @property
    def session_token(self) -> str:
        """A token of all that was answered to this client, for use by another one.

        Empty before the first answer.
        """
        with self._lock:
            return SESSION_TOKEN_SEPARATOR.join(self._tokens)

    def query(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), *, timeout_ms: int | None = None
    ) -> QueryAnswer:
        limit_ms = timeout_ms or self.timeout_ms
        bound = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        body: dict[str, Any] = {
            "sql": sql,
            "parameters": bound,
            "timeout_ms": limit_ms,
            "database": self.database,
        }
        if self.engine is not None:  # not known to services of before there were two
            body["engine"] = self.engine
        headers = {"Content-Type": "application/json"}
        if sent := self.session_token:
            headers[SESSION_TOKEN_HEADER] = sent
        try:
            response = self._http.post(
                f"{self.url}/api/v1/query",
                content=msgspec.json.encode(body),
                headers=headers,
                timeout=limit_ms / 1000 + DEADLINE_GRACE_S,
            )
        except httpx.HTTPError as error:
            raise Unavailable(
                f"the query service {self.url} does not answer",
                found=str(error),
                action="start it with `rtolap query serve`",
            ) from error
        if response.status_code != 200:
            raise error_of(response)
        self._advance(sent, response.headers.get(SESSION_TOKEN_HEADER, ""))
        return decode_json(response.content, QueryAnswer)

    def _advance(self, sent: str, received: str) -> None:
        """Advance the session's token: the received one covers the sent ones and this answer."""
        if received:
            with self._lock:
                merged = set(_separate(sent))
                self._tokens = [each for each in self._tokens if each not in merged] + [received]

    def health(self) -> dict[str, str]:
        return decode_json(self._get("/health"), dict[str, str])

    def history_cache(self, versions_max: int) -> HistoryCacheReport:
        """Return what of history is on the service's disk, with at most so many versions."""
        body = self._get(f"/api/v1/history-cache?versions={versions_max}")
        return decode_json(body, HistoryCacheReport)

    def _get(self, path: str) -> bytes:
        try:
            response = self._http.get(f"{self.url}{path}", timeout=DEADLINE_GRACE_S)
        except httpx.HTTPError as error:
            raise Unavailable(f"the query service {self.url} does not answer", found=str(error)) from error
        if response.status_code != 200:
            raise error_of(response)
        return response.content

    def close(self) -> None:
        self._http.close()


def _separate(tokens: str) -> list[str]:
    return [each for each in tokens.split(SESSION_TOKEN_SEPARATOR) if each]
