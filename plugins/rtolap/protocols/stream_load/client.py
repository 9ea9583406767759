"""Client of a front end, ours or that of Doris."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.base.ids import bound
from rtolap.protocols.rest.clients import beginning_of
from rtolap.protocols.stream_load.front_ends import ASK_TIMEOUT_S, FrontEnds, read
from rtolap.protocols.stream_load.messages import (
    KEEP_LABEL_HEADER,
    KEEP_LABEL_VALUE,
    NOT_AFTER_HEADER,
    AcknowledgeRequest,
    LoadAnswer,
    LoadState,
    SendOptions,
    ServerInfo,
    StateAnswer,
    TableSchema,
    TwoPhaseAnswer,
)
from rtolap.protocols.stream_load.schema_answer import read_schema

__all__ = ["ASK_TIMEOUT_S", "StreamLoadClient"]

GRACE_S = (
    30.0  # the front end gives up by itself at the request's timeout; its words are better than a broken call
)
_ERROR_LOG_BYTES_MAX = 4 << 20
_FINAL = (LoadState.VISIBLE, LoadState.ABORTED)


class StreamLoadClient(Closeable):
    """A client of Stream Load. It is thread-safe. `urls` are the endpoints of one cluster; the next is tried
    where one does not respond.

    Errors of all calls: Unavailable (it may have been carried out: request the state), Unauthorized,
    Forbidden, Refused.

    Attributes:
        requests_may_join: True where a request of an earlier attempt that comes late may add its rows to a
            later transaction of the same label.
    """

    requests_may_join = False

    def __init__(
        self,
        urls: Iterable[str],
        user: str,
        password: str,
        *,
        ca_file: Path | None = None,
        plain_backends: tuple[str, ...] = (),
    ) -> None:
        self._front_ends = FrontEnds(urls, user, password, ca_file=ca_file, plain_backends=plain_backends)

    @property
    def urls(self) -> tuple[str, ...]:
        return self._front_ends.urls

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
        headers = load_headers(label, options, two_phase=two_phase)
        path = f"/api/{quote(db, safe='')}/{quote(table, safe='')}/_stream_load"
        return self._load(path, headers, body, options, label)

    def _load(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes],
        options: SendOptions,
        label: str,
    ) -> LoadAnswer:
        with bound(load=label):
            answer = self._front_ends.put(
                path,
                headers,
                body,
                timeout_s=options.timeout_s + GRACE_S,
                repeatable=isinstance(body, bytes),
            )
        return read_load(answer.status, answer.body, label)

    def commit(self, db: str, txn_id: int) -> TwoPhaseAnswer:
        return self._second_phase(db, {"txn_id": str(txn_id), "txn_operation": "commit"})

    def abort(self, db: str, txn_id: int) -> TwoPhaseAnswer:
        return self._second_phase(db, {"txn_id": str(txn_id), "txn_operation": "abort"})

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        return self._second_phase(db, {"label": label, "txn_operation": "commit"})

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        return self._second_phase(db, {"label": label, "txn_operation": "abort"})

    def mark(self, db: str, table: str, label: str) -> bool:
        """Finish a transaction without rows under the label, so that the server remembers the label from now
        on. Return False where it does not.

        The first phase of a load without rows is aborted: no version of the table comes of it.
        """
        options = SendOptions(format="csv", timeout_s=int(ASK_TIMEOUT_S))
        answer = self.load(db, table, label, b"", options, two_phase=True)
        if answer.txn_id >= 0:
            self.abort(db, answer.txn_id)
        else:
            self.roll_back(db, label)
        return self.state(db, label) in _FINAL

    def state(self, db: str, label: str) -> LoadState:
        return self._state("GET", f"/api/{quote(db, safe='')}/get_load_state", label)

    def close_label(self, db: str, label: str) -> LoadState:
        """Close a label, where `keeps_labels`, so that no load is taken under it any more, and return its
        outcome: COMMITTED, VISIBLE, or ABORTED. A load under way is aborted."""
        return self._state("PUT", f"/api/{quote(db, safe='')}/_close_label", label)

    def schema(self, db: str, table: str) -> TableSchema:
        """Return the schema of a table. Raises NotFound."""
        path = f"/api/{quote(db, safe='')}/{quote(table, safe='')}/_schema"
        response = self._front_ends.request("GET", path)
        if response.status_code not in (200, 401, 403, 404):
            return read(response.status_code, response.content, TableSchema, f"GET {path}")
        return read_schema(response.status_code, response.content, db, table)

    def keeps_labels(self) -> bool:
        """Return True if labels stay until they are acknowledged; then `acknowledge` is understood too."""
        response = self._front_ends.request("GET", "/")
        try:
            return decode_json(response.content, ServerInfo).keeps_labels
        except msgspec.MsgspecError:
            return False  # Doris answers with a page for people

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        """Acknowledge labels that are needed no more. It is harmless for those that are gone."""
        body = msgspec.json.encode(AcknowledgeRequest(tuple(labels)))
        path = f"/api/{quote(db, safe='')}/_acknowledge_labels"
        answer = self._front_ends.ask("PUT", path, TwoPhaseAnswer, content=body)
        if answer.status != "Success":
            raise Refused("labels cannot be acknowledged", found=answer.msg)

    def error_log(self, url: str) -> str:
        """Return the rejected rows of a load, at most the beginning.

        `url` must be of one of our endpoints' hosts or of the server that the front end named; credentials
        are sent to our front ends only.
        """
        front_ends = self._front_ends
        headers = {"Authorization": front_ends.authorization} if front_ends.has(url) else {}
        try:
            with front_ends.http.stream("GET", url, headers=headers) as response:
                taken = beginning_of(response, _ERROR_LOG_BYTES_MAX)
        except httpx.HTTPError as error:
            raise Unavailable("the rejected rows of a load cannot be read", found=str(error)) from error
        if response.status_code != 200:
            raise NotFound("the rejected rows of a load are gone", found=f"HTTP {response.status_code}")
        return taken[:_ERROR_LOG_BYTES_MAX].decode("utf-8", "replace")

    def close(self) -> None:
        self._front_ends.close()

    def _state(self, method: str, path: str, label: str) -> LoadState:
        answer = self._front_ends.ask(method, path, StateAnswer, params={"label": label})
        if answer.code != 0 or answer.data is None:
            raise Refused(f"the front end refuses the state of label {label}", found=answer.msg)
        return known_state(label, answer.data)

    def _second_phase(self, db: str, headers: Mapping[str, str]) -> TwoPhaseAnswer:
        path = f"/api/{quote(db, safe='')}/_stream_load_2pc"
        return self._front_ends.ask("PUT", path, TwoPhaseAnswer, headers=headers)


def known_state(label: str, state: str) -> LoadState:
    try:
        return LoadState(state)
    except ValueError:
        raise Refused(
            f"label {label} is in a state this client does not know", found=repr(state[:80])
        ) from None


def load_headers(label: str, options: SendOptions, *, two_phase: bool = False) -> dict[str, str]:
    """Return the headers of a load, those that a definition asks for among them."""
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


class _Refusal(msgspec.Struct, frozen=True):
    """The answer of a front end of Doris that takes no load: other keys, and HTTP status 200."""

    status: str | None = None
    msg: str | None = None


def read_load(status: int, body: bytes, label: str) -> LoadAnswer:
    """Return the response to a load, also where the front end refused it before any backend had it."""
    answer = read(status, body, LoadAnswer, f"load {label}")
    if answer.status == "Fail" and not answer.message:
        refusal = read(status, body, _Refusal, f"load {label}")
        words = (
            refusal.msg or f"status {refusal.status}"
            if refusal.status
            else body[:200].decode("utf-8", "replace")
        )
        return msgspec.structs.replace(answer, label=label, message=words)
    return answer
