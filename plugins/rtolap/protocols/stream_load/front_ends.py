"""Requests to the front ends of one cluster: in turn, along redirects, with the credentials of a user.

Credentials go only where the redirect policy lets them go. See `redirects`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import (
    DefinitionError,
    Forbidden,
    NotFound,
    Refused,
    RtolapError,
    Unauthorized,
    Unavailable,
    from_dict,
)
from rtolap.base.spans import sent_headers
from rtolap.base.tls import trust
from rtolap.protocols.rest.clients import service_client, service_url
from rtolap.protocols.stream_load.expect_continue import PutAnswer, put
from rtolap.protocols.stream_load.redirects import PlainBackends

T = TypeVar("T")

ASK_TIMEOUT_S = 15.0
_REDIRECTS_MAX = 3
_REDIRECTED = (301, 302, 307, 308)
_AWAY = (429, 502, 503, 504)
_CHECK_USER = "check `sink.user` and `sink.password_file`, and the rights of the user in the server"
_CHECK_SERVER = "check `sink.urls`, `sink.target` and the version of the server"


class FrontEnds(Closeable):
    """Thread-safe. `urls`: front ends of one cluster; the next is tried where one does not respond.

    Errors of all calls: Unavailable (the request may have been carried out), Unauthorized, Forbidden for a
    redirect that the policy refuses, Refused.
    """

    def __init__(
        self,
        urls: Iterable[str],
        user: str,
        password: str,
        *,
        ca_file: Path | None = None,
        plain_backends: tuple[str, ...] = (),
    ) -> None:
        self.urls = tuple(service_url(url, "a front end") for url in urls)
        if not self.urls:
            raise DefinitionError("no address of a front end", expected="at least one base URL")
        self._first = 0  # the front end that answered last
        self._trust = trust(ca_file)
        self._backends = PlainBackends(plain_backends, frozenset(self.urls))
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.authorization = f"Basic {basic}"
        self.http = service_client(verify=self._trust, timeout=ASK_TIMEOUT_S)

    def close(self) -> None:
        self.http.close()

    def has(self, url: str) -> bool:
        """Return True if the URL is one of a front end."""
        found = urlsplit(url)
        return any((found.scheme, found.netloc) == urlsplit(one)[:2] for one in self.urls)

    def put(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes],
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> PutAnswer:
        """Put the body to the first front end that answers.

        A front end that broke off may have carried the request out. Only a body under a label may therefore
        go to the next one, because the label admits it once.
        """
        sent = dict(headers) | sent_headers() | {"authorization": self.authorization}
        last_error: Unavailable | None = None
        for endpoint in self._in_turn() if repeatable else self._in_turn()[:1]:
            url = endpoint + path
            try:
                for _ in range(_REDIRECTS_MAX + 1):
                    answer = put(url, sent, body, timeout_s=timeout_s, trust=self._trust)
                    if answer.status not in _REDIRECTED:
                        self._first = self.urls.index(endpoint)
                        return answer
                    url = self._backends.next_url(url, answer.location)
            except Unavailable as error:
                last_error = error
                continue
            raise Refused(f"{endpoint} redirects without end", found=url)
        assert last_error is not None, "there is at least one front end"
        raise last_error

    def ask(self, method: str, path: str, kind: type[T], **request: Any) -> T:
        response = self.request(method, path, **request)
        return read(response.status_code, response.content, kind, f"{method} {path}")

    def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**request.pop("headers", {}), "authorization": self.authorization}
        params = request.pop("params", None)
        last_error: Unavailable | None = None
        for endpoint in self._in_turn():
            url = endpoint + path
            query = params
            try:
                for _ in range(_REDIRECTS_MAX + 1):
                    response = self.http.request(method, url, headers=headers, params=query, **request)
                    if response.status_code not in _REDIRECTED:
                        break
                    # the location holds the query; the credentials go along, as the protocol wants it
                    url, query = self._backends.next_url(url, response.headers.get("location", "")), None
                else:
                    raise Refused(f"{endpoint} redirects without end", found=url)
            except httpx.HTTPError as error:
                last_error = Unavailable(
                    f"{endpoint} does not answer",
                    found=str(error) or repr(error),
                    action="check that it runs, and `sink.urls` and `sink.ca_file`",
                )
                continue
            if response.status_code in _AWAY:
                last_error = _unavailable(endpoint, response.status_code, response.text)
                continue
            self._first = self.urls.index(endpoint)
            return response
        assert last_error is not None, "there is at least one front end"
        raise last_error

    def _in_turn(self) -> tuple[str, ...]:
        first = self._first
        return self.urls[first:] + self.urls[:first]


class _Coded(msgspec.Struct, frozen=True):
    """The envelope of Doris: an error may come with HTTP status 200."""

    code: Any = 0
    msg: Any = ""
    data: Any = None


def read(status: int, body: bytes, kind: type[T], purpose: str) -> T:
    """Return the answer. Raises the error that the front end states, in its HTTP status or in its JSON."""
    if status != 200:
        raise refusal(status, body, purpose)
    check_code(body, purpose)
    try:
        return decode_json(body, kind)
    except msgspec.MsgspecError as error:
        raise Unavailable(
            f"{purpose}: the answer cannot be read",
            found=f"{error}: {body[:200]!r}",
            action=_CHECK_SERVER,
        ) from error


def check_code(body: bytes, purpose: str) -> None:
    """Raise where the JSON states that a user may not do what was asked, whatever the HTTP status is."""
    try:
        coded = decode_json(body, _Coded)
    except msgspec.MsgspecError:
        return
    if coded.code in (401, 403):
        raise denied(coded.code, f"{coded.msg}: {coded.data}", purpose)


def denied(status: int, found: str, purpose: str) -> RtolapError:
    if status == 401:
        return Unauthorized(f"{purpose}: the credentials are refused", found=found, action=_CHECK_USER)
    return Forbidden(f"{purpose}: the user lacks a right", found=found, action=_CHECK_USER)


def refusal(status: int, body: bytes, purpose: str) -> RtolapError:
    """Return the error of an answer whose HTTP status is not 200."""
    text = body[:500].decode("utf-8", "replace")
    try:
        payload = decode_json(body, dict[str, Any])
    except msgspec.MsgspecError:
        payload = None
    if payload is not None and "code" in payload and "message" in payload:
        return from_dict(payload)
    if status in (401, 403):
        return denied(status, text, purpose)
    if status == 404 and payload is None:
        return Refused(f"{purpose}: the server has no such interface", found=text, action=_CHECK_SERVER)
    if status == 404:
        return NotFound(f"{purpose}: not found", found=text)
    if status >= 500 or status == 429:
        return _unavailable(purpose, status, text)
    return Refused(f"{purpose}: refused", found=f"HTTP {status}: {text}", action=_CHECK_SERVER)


def _unavailable(server: str, status: int, text: str) -> Unavailable:
    return Unavailable(f"{server} cannot be done now", found=f"HTTP {status}: {text[:500]}", action="retry")
