"""The decisions of loads, asked of the master over REST: from other front ends and from storage nodes.

A request that nobody answers, or that meets an election, is sent again until `retry_s` is over: every one may
come twice. An error that the master states is raised at once. So a load survives the death of the master as
long as another one is elected within that time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeVar

import httpx
import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import LabelUsed, NotLeader, Unavailable
from rtolap.protocols.rest.error_responses import unreadable
from rtolap.protocols.storage.messages import StorageNodeInfo
from rtolap.protocols.stored_tables.messages import API
from rtolap.stored.metastore.records import NO_FIGURES, BeginRequest, LoadFigures, Partition, Transaction
from rtolap.stored.stream_load import decision_messages as wire
from rtolap.stored.stream_load.table_entry import TableEntry

RETRY_S = 30.0  # longer than the lease of a master and an election
TIMEOUT_S = 30.0  # a commit asks every node of its partitions
CONNECT_TIMEOUT_S = 2.0
_PAUSE_S = 0.1
T = TypeVar("T")


class Masters(Protocol):
    """Addresses of front ends, and what their answers say about which of them is master: `LeaderFinder`."""

    def attempts(self) -> Iterator[str]:
        """Yield the base URL that is believed to be the master's, then others."""
        ...

    def failed(self, url: str, error: Exception) -> None: ...

    def answered(self, url: str, response: httpx.Response) -> bool:
        """Return True if this is the master's answer. Raises the error that it states."""
        ...


class DecisionClient:
    """The tables, transactions and visibility of `decisions`, at the master. Thread-safe.

    `http` carries the cluster's token; its owner closes it. Raises NotLeader when nobody answered as master
    within `retry_s`: the request may have been carried out.
    """

    def __init__(
        self,
        masters: Masters,
        http: httpx.Client,
        *,
        retry_s: float = RETRY_S,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._masters, self._http, self._retry_s, self._sleep = masters, http, retry_s, sleep

    def table_to_load(self, db: str, name: str) -> TableEntry:
        return self._ask("table", wire.TableRequest(db, name), TableEntry)

    def ensure_partitions(self, db: str, name: str, instants_ms: Collection[int]) -> TableEntry:
        request = wire.PartitionsRequest(db, name, tuple(sorted(instants_ms)))
        return self._ask("partitions", request, TableEntry)

    def can_take(self, entry: TableEntry, partitions: Collection[str]) -> bool:
        names = tuple(sorted(partitions))
        request = wire.CanTakeRequest(entry.db, entry.name, entry.table_id, names)
        return self._ask("can-take", request, wire.CanTakeAnswer).can_take

    def begin(self, wanted: BeginRequest) -> Transaction:
        answer = self._ask("begin", wanted, wire.BeginAnswer)
        if answer.transaction is not None:
            return answer.transaction
        used = answer.used_label or wire.UsedLabel("the label is used", -1, "")
        raise LabelUsed(used.message, txn_id=used.txn_id, existing_job_status=used.existing_job_status)

    def precommit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        request = wire.CommitRequest(db, txn_id, tuple(sorted(partitions)), figures)
        return self._ask("precommit", request, Transaction)

    def commit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        request = wire.CommitRequest(db, txn_id, tuple(sorted(partitions)), figures)
        return self._ask("commit", request, Transaction)

    def abort(self, db: str, txn_id: int, reason: str, *, figures: LoadFigures = NO_FIGURES) -> Transaction:
        return self._ask("abort", wire.AbortRequest(db, txn_id, reason, figures), Transaction)

    def get(self, db: str, txn_id: int) -> Transaction:
        return self._ask("transaction", wire.TransactionRequest(db, txn_id), Transaction)

    def wait(self, db: str, txn_id: int, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, until_s - time.monotonic())
            request = wire.WaitRequest(db, txn_id, min(left_s, wire.WAIT_S_MAX))
            if self._ask("wait", request, wire.WaitAnswer).visible:
                return True
            if time.monotonic() >= until_s:
                return False

    def storage_nodes(self) -> tuple[StorageNodeInfo, ...]:
        """Return the storage nodes that the front ends know. Any of them answers."""
        return self._repeat("GET", f"{API}/storage-nodes", None, tuple[StorageNodeInfo, ...])

    def _ask(self, path: str, body: msgspec.Struct, answer: type[T]) -> T:
        return self._repeat("POST", f"{wire.PREFIX}/{path}", msgspec.json.encode(body), answer)

    def _repeat(self, method: str, path: str, content: bytes | None, answer: type[T]) -> T:
        until_s = time.monotonic() + self._retry_s
        while True:
            response, failure = self._once(method, path, content)
            if response is not None:
                return _read(response, answer)
            if time.monotonic() >= until_s or math.isclose(self._retry_s, 0.0):
                raise NotLeader(
                    f"no front end took {method} {path} as master; found {failure}; send it again with the "
                    "same label"
                )
            self._sleep(_PAUSE_S)

    def _once(self, method: str, path: str, content: bytes | None) -> tuple[httpx.Response | None, str]:
        """Return the master's answer; or None, and what was found in its place."""
        failure = "no front end that is known"
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        for url in self._masters.attempts():
            try:
                response = self._http.request(method, url + path, content=content, timeout=timeout)
            except httpx.TransportError as error:
                failure = f"{url}: {error or type(error).__name__}"
                self._masters.failed(url, error)
                continue
            except RuntimeError:
                if not self._http.is_closed:
                    raise
                raise Unavailable("the process shuts down", action="send it again elsewhere") from None
            if self._masters.answered(url, response):
                return response, ""
            failure = f"{url} is not master"
        return None, failure


def _read(response: httpx.Response, answer: type[T]) -> T:
    try:
        return decode_json(response.content, answer)
    except msgspec.MsgspecError as error:
        raise unreadable(response, error, "front end") from error
