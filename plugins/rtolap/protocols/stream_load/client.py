"""Client of a front end, ours or that of Doris."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import httpx
import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import (
    DefinitionError,
    NotFound,
    Refused,
    RtolapError,
    Unauthorized,
    Unavailable,
    from_dict,
)
from rtolap.base.tls import trust
from rtolap.protocols.rest.pooling import SHARED_BY_THREADS
from rtolap.protocols.stream_load.expect_continue import PutAnswer, put
from rtolap.protocols.stream_load.messages import (
    KEEP_LABEL_HEADER,
    KEEP_LABEL_VALUE,
    NOT_AFTER_HEADER,
    AcknowledgeRequest,
    LoadAnswer,
    LoadState,
    SchemaAnswer,
    SendOptions,
    ServerInfo,
    StateAnswer,
    TableSchema,
    TwoPhaseAnswer,
)

T = TypeVar("T")

ASK_TIMEOUT_S = 15.0
_GRACE_S = (
    30.0  # the front end gives up by itself at the request's timeout; its words are better than a broken call
)
_REDIRECTS_MAX = 3
_ERROR_LOG_BYTES_MAX = 4 << 20


class StreamLoadClient(Closeable):
    """A client of Stream Load. It is thread-safe. `urls` are the endpoints of one cluster; the next is tried
    where one does not respond.

    Errors of all calls: Unavailable (it may have been carried out: request the state), Unauthorized, Refused.
    """

    def __init__(self, urls: Iterable[str], user: str, password: str, *, ca_file: Path | None = None) -> None:
        self.urls = tuple(_checked(url) for url in urls)
        if not self.urls:
            raise DefinitionError("no address of a front end", expected="at least one base URL")
        self._first = 0  # the front end that answered last
        self._trust = trust(ca_file)
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._authorization = f"Basic {basic}"
        self._http = httpx.Client(
            verify=self._trust, timeout=ASK_TIMEOUT_S, trust_env=False, limits=SHARED_BY_THREADS
        )

    def load(
        self,
        db: str,
        table: str,
        label: str,
        body: bytes | Iterable[bytes],
        options: SendOptions = SendOptions(),
        *,
        two_phase: bool = False,
    ) -> LoadAnswer:
        """Send rows under the label. An iterable can be sent once only: it goes to the first endpoint."""
        headers = _load_headers(label, options, two_phase=two_phase)
        path = f"/api/{quote(db, safe='')}/{quote(table, safe='')}/_stream_load"
        timeout_s = options.timeout_s + _GRACE_S
        answer = self._put(path, headers, body, timeout_s=timeout_s, repeatable=isinstance(body, bytes))
        return _read(answer.status, answer.body, LoadAnswer, f"load {label}")

    def commit(self, db: str, txn_id: int) -> TwoPhaseAnswer:
        return self._second_phase(db, {"txn_id": str(txn_id), "txn_operation": "commit"})

    def abort(self, db: str, txn_id: int) -> TwoPhaseAnswer:
        return self._second_phase(db, {"txn_id": str(txn_id), "txn_operation": "abort"})

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        return self._second_phase(db, {"label": label, "txn_operation": "commit"})

    def state(self, db: str, label: str) -> LoadState:
        return self._state("GET", f"/api/{quote(db, safe='')}/get_load_state", label)

    def close_label(self, db: str, label: str) -> LoadState:
        """Close a label, where `keeps_labels`, so that no load is taken under it any more, and return its
        outcome: COMMITTED, VISIBLE, or ABORTED. A load under way is aborted."""
        return self._state("PUT", f"/api/{quote(db, safe='')}/_close_label", label)

    def schema(self, db: str, table: str) -> TableSchema:
        """Return the schema of a table. Raises NotFound."""
        path = f"/api/{quote(db, safe='')}/{quote(table, safe='')}/_schema"
        answer = self._ask("GET", path, SchemaAnswer)
        if answer.code != 0 or answer.data is None:
            raise NotFound(f"table {db}.{table} is not there", found=answer.msg)
        return answer.data

    def keeps_labels(self) -> bool:
        """Return True if labels stay until they are acknowledged; then `acknowledge` is understood too."""
        response = self._request("GET", "/")
        try:
            return decode_json(response.content, ServerInfo).keeps_labels
        except msgspec.MsgspecError:
            return False  # Doris answers with a page for people

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        """Acknowledge labels that are needed no more. It is harmless for those that are gone."""
        body = msgspec.json.encode(AcknowledgeRequest(tuple(labels)))
        path = f"/api/{quote(db, safe='')}/_acknowledge_labels"
        answer = self._ask("PUT", path, TwoPhaseAnswer, content=body)
        if answer.status != "Success":
            raise Refused("labels cannot be acknowledged", found=answer.msg)

    def error_log(self, url: str) -> str:
        """Return the rejected rows of a load, at most the beginning.

        `url` must be of one of our endpoints' hosts or of the server that the front end named; credentials
        are sent to our front ends only.
        """
        is_endpoint = any(urlsplit(url).netloc == urlsplit(endpoint).netloc for endpoint in self.urls)
        headers = {"Authorization": self._authorization} if is_endpoint else {}
        try:
            with self._http.stream("GET", url, headers=headers) as response:
                taken = bytearray()
                for chunk in response.iter_bytes():
                    taken += chunk
                    if len(taken) >= _ERROR_LOG_BYTES_MAX:
                        break
        except httpx.HTTPError as error:
            raise Unavailable("the rejected rows of a load cannot be read", found=str(error)) from error
        if response.status_code != 200:
            raise NotFound("the rejected rows of a load are gone", found=f"HTTP {response.status_code}")
        return bytes(taken[:_ERROR_LOG_BYTES_MAX]).decode("utf-8", "replace")

    def close(self) -> None:
        self._http.close()

    def _state(self, method: str, path: str, label: str) -> LoadState:
        answer = self._ask(method, path, StateAnswer, params={"label": label})
        if answer.code != 0 or answer.data is None:
            raise Refused(f"the front end refuses the state of label {label}", found=answer.msg)
        try:
            return LoadState(answer.data)
        except ValueError:
            raise Refused(
                f"label {label} is in a state this client does not know", found=repr(answer.data[:80])
            ) from None

    def _second_phase(self, db: str, headers: Mapping[str, str]) -> TwoPhaseAnswer:
        path = f"/api/{quote(db, safe='')}/_stream_load_2pc"
        return self._ask("PUT", path, TwoPhaseAnswer, headers=headers)

    def _put(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes],
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> PutAnswer:
        """Put the body to the first endpoint that answers.

        An endpoint that broke off may have carried the request out. Only a body under a label may therefore
        go to the next endpoint, because the label admits it once.
        """
        sent = dict(headers) | {"authorization": self._authorization}
        last_error: Unavailable | None = None
        for endpoint in self._in_turn() if repeatable else self._in_turn()[:1]:
            url = endpoint + path
            try:
                for _ in range(_REDIRECTS_MAX + 1):
                    answer = put(url, sent, body, timeout_s=timeout_s, trust=self._trust)
                    if answer.status not in (301, 302, 307, 308):
                        self._first = self.urls.index(endpoint)
                        return answer
                    url = _redirected(url, answer.location)
            except Unavailable as error:
                last_error = error
                continue
            raise Refused(f"{endpoint} redirects without end", found=url)
        assert last_error is not None, "there is at least one front end"
        raise last_error

    def _ask(self, method: str, path: str, kind: type[T], **request: Any) -> T:
        response = self._request(method, path, **request)
        return _read(response.status_code, response.content, kind, f"{method} {path}")

    def _request(self, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**request.pop("headers", {}), "authorization": self._authorization}
        params = request.pop("params", None)
        last_error: Unavailable | None = None
        for endpoint in self._in_turn():
            url = endpoint + path
            query = params
            try:
                for _ in range(_REDIRECTS_MAX + 1):
                    response = self._http.request(method, url, headers=headers, params=query, **request)
                    if response.status_code not in (301, 302, 307, 308):
                        break
                    # the location holds the query; the credentials go along, as the protocol wants it
                    url, query = _redirected(url, response.headers.get("location", "")), None
                else:
                    raise Refused(f"{endpoint} redirects without end", found=url)
            except httpx.HTTPError as error:
                last_error = Unavailable(f"{endpoint} does not answer", found=str(error) or repr(error))
                continue
            if response.status_code in (502, 503, 504, 429):
                last_error = _unavailable(endpoint, response.status_code, response.text)
                continue
            self._first = self.urls.index(endpoint)
            return response
        assert last_error is not None, "there is at least one front end"
        raise last_error

    def _in_turn(self) -> tuple[str, ...]:
        first = self._first
        return self.urls[first:] + self.urls[:first]


def _load_headers(label: str, options: SendOptions, *, two_phase: bool) -> dict[str, str]:
    headers = {
        "label": label,
        "format": options.format,
        "timeout": str(options.timeout_s),
        "max_filter_ratio": f"{options.max_filter_ratio:.6f}".rstrip("0").rstrip("."),
        "strict_mode": "true" if options.strict_mode else "false",
    }
    if options.columns:
        headers["columns"] = ",".join(f"`{name}`" for name in options.columns)
    if two_phase:
        headers["two_phase_commit"] = "true"
    if options.keep_label:
        headers[KEEP_LABEL_HEADER] = KEEP_LABEL_VALUE
    if options.not_after_ms is not None:
        headers[NOT_AFTER_HEADER] = str(options.not_after_ms)
    return headers | options.headers


def _read(status: int, body: bytes, kind: type[T], purpose: str) -> T:
    if status == 200:
        try:
            return decode_json(body, kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"{purpose}: the answer cannot be read", found=f"{error}: {body[:200]!r}"
            ) from error
    raise _refusal(status, body, purpose)


def _refusal(status: int, body: bytes, purpose: str) -> RtolapError:
    text = body[:500].decode("utf-8", "replace")
    if status == 401:
        return Unauthorized(f"{purpose}: the credentials are refused", found=text)
    try:
        payload = decode_json(body, dict[str, Any])
    except msgspec.MsgspecError:
        payload = {}
    if "code" in payload and "message" in payload:
        return from_dict(payload)
    if status == 404:
        return NotFound(f"{purpose}: not found", found=text)
    if status >= 500 or status == 429:
        return _unavailable(purpose, status, text)
    return Refused(f"{purpose}: refused", found=f"HTTP {status}: {text}")


def _unavailable(server: str, status: int, text: str) -> Unavailable:
    return Unavailable(f"{server} cannot be done now", found=f"HTTP {status}: {text[:500]}", action="retry")


def _redirected(url: str, location: str) -> str:
    """Return the URL of a redirect, without the credentials that some servers put there. Raises Refused where
    TLS would be left.
    """
    target = urlsplit(urljoin(url, location))
    if not location or target.scheme not in ("http", "https") or not target.hostname:
        raise Refused("a redirect that leads nowhere", found=repr(location[:200]))
    if urlsplit(url).scheme == "https" and target.scheme != "https":
        raise Refused("a redirect away from TLS", expected="https", found=target.hostname)
    return urlunsplit(target._replace(netloc=target.netloc.rpartition("@")[2]))


def _checked(url: str) -> str:
    parts = urlsplit(url.strip().rstrip("/"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise DefinitionError(
            "not the address of a front end", expected="http(s)://host:port, no credentials"
        )
    return parts.geturl()
