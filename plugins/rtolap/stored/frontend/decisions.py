"""The decisions of loads whose bodies a front end takes: its own while it is master, else the master's.

A load that begins under one master may end under another. Where nobody is master, it waits for the election.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

import httpx

from rtolap.base.errors import NotLeader
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.stored.frontend.election import Election
from rtolap.stored.metastore.records import NO_FIGURES, BeginRequest, LoadFigures, Partition, Transaction
from rtolap.stored.stream_load.decision_client import RETRY_S, DecisionClient
from rtolap.stored.stream_load.decisions import TableDecisions, TransactionDecisions, VisibilityDecisions
from rtolap.stored.stream_load.table_entry import TableEntry

_PAUSE_S = 0.1
T = TypeVar("T")


class LeaseMasters:
    """The master that the lease in the ledger names, as `Masters`."""

    def __init__(self, election: Election) -> None:
        self._election = election

    def attempts(self) -> Iterator[str]:
        """Yield the master's base URL. Raises NotLeader while there is none."""
        yield self._election.master().url

    def failed(self, url: str, error: Exception) -> None:
        """Do nothing: the lease says who is next."""

    def answered(self, url: str, response: httpx.Response) -> bool:
        return LeaderFinder((url,)).answered(url, response)


@dataclass(frozen=True)
class MasterDecisions:
    """The decisions of a front end, which hold while it is master."""

    tables: TableDecisions
    transactions: TransactionDecisions
    visibility: VisibilityDecisions


class ElectedDecisions:
    """The decisions of `stream_load.decisions`, wherever the master is. Thread-safe.

    `retry_s`: how long an election may take until a load fails by NotLeader.
    """

    def __init__(
        self,
        election: Election,
        own: MasterDecisions,
        http: httpx.Client,
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        self._election, self._own, self._retry_s = election, own, retry_s
        client = DecisionClient(LeaseMasters(election), http, retry_s=0.0)
        self._masters = MasterDecisions(client, client, client)

    def table_to_load(self, db: str, name: str) -> TableEntry:
        return self._ask(lambda master: master.tables.table_to_load(db, name))

    def ensure_partitions(self, db: str, name: str, instants_ms: Collection[int]) -> TableEntry:
        return self._ask(lambda master: master.tables.ensure_partitions(db, name, instants_ms))

    def can_take(self, entry: TableEntry, partitions: Collection[str]) -> bool:
        return self._ask(lambda master: master.tables.can_take(entry, partitions))

    def begin(self, wanted: BeginRequest) -> Transaction:
        return self._ask(lambda master: master.transactions.begin(wanted))

    def precommit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        return self._ask(
            lambda master: master.transactions.precommit(db, txn_id, partitions, figures=figures)
        )

    def commit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        return self._ask(lambda master: master.transactions.commit(db, txn_id, partitions, figures=figures))

    def abort(self, db: str, txn_id: int, reason: str, *, figures: LoadFigures = NO_FIGURES) -> Transaction:
        return self._ask(lambda master: master.transactions.abort(db, txn_id, reason, figures=figures))

    def get(self, db: str, txn_id: int) -> Transaction:
        """Return a transaction. Every front end reads it from the ledger. Raises NotFound."""
        return self._own.transactions.get(db, txn_id)

    def wait(self, db: str, txn_id: int, timeout_s: float) -> bool:
        return self._ask(lambda master: master.visibility.wait(db, txn_id, timeout_s))

    def _ask(self, decide: Callable[[MasterDecisions], T]) -> T:
        until_s = time.monotonic() + self._retry_s
        while True:
            try:
                return decide(self._own if self._election.leading else self._masters)
            except NotLeader:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(_PAUSE_S)
