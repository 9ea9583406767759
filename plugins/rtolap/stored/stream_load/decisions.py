"""The decisions that a load asks the master for, as interfaces.

On the master they are its own objects: `Catalogue`, `TransactionManager`, `Visibility` of `stored.frontend`.
On any other process that takes bodies, `decision_client` asks the master. Every call may be repeated, come
late, or come twice. All of them raise NotLeader while no front end is master.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rtolap.stored.metastore.records import NO_FIGURES, BeginRequest, LoadFigures, Partition, Transaction
from rtolap.stored.stream_load.table_entry import TableEntry


class TableDecisions(Protocol):
    """The tables that loads go to, with their partitions."""

    def table_to_load(self, db: str, name: str) -> TableEntry:
        """Return a table whose rows may be sent. Raises NotFound."""
        ...

    def ensure_partitions(self, db: str, name: str, instants_ms: Collection[int]) -> TableEntry:
        """Have the partitions of these instants exist, if the table's loads make any; return the table.

        Raises NotFound, Refused, NotYet, Unavailable.
        """
        ...

    def can_take(self, entry: TableEntry, partitions: Collection[str]) -> bool:
        """Return True if a majority of each tablet's replicas in these partitions can take rows."""
        ...


class TransactionDecisions(Protocol):
    """The life of a load's transaction."""

    def begin(self, wanted: BeginRequest) -> Transaction:
        """Return a new transaction; the old one where this very request has begun it and it still is in
        PREPARE.

        Raises LabelUsed, Refused, TooManyAtOnce, DefinitionError.
        """
        ...

    def precommit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        """Perform the first phase. `figures` are kept."""
        ...

    def commit(
        self, db: str, txn_id: int, partitions: Collection[Partition], *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction:
        """Commit a one-phase transaction. `figures` are kept."""
        ...

    def abort(
        self, db: str, txn_id: int, reason: str, *, figures: LoadFigures = NO_FIGURES
    ) -> Transaction: ...

    def get(self, db: str, txn_id: int) -> Transaction:
        """Return a transaction. Raises NotFound."""
        ...


class VisibilityDecisions(Protocol):
    def wait(self, db: str, txn_id: int, timeout_s: float) -> bool:
        """Wait until a transaction is VISIBLE; return False after the time, when it will be later."""
        ...


class LoadDecisions(TableDecisions, TransactionDecisions, VisibilityDecisions, Protocol):
    """All of them, of one object."""
