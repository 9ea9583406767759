"""The seam towards frontends and storage nodes, as a query sees them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rtolap.base.errors import Unavailable
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.storage.client import BatchStream, StorageClients
from rtolap.protocols.storage.messages import Pin, ScanRequest, TabletId, Unpin
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import (
    AddPartition,
    ColumnChange,
    PartitionInfo,
    ReadView,
    TableInfo,
    TableName,
    TransactionInfo,
)


class StoredSource(Protocol):
    """The source of stored rows. It is thread-safe. Raises Unavailable where no front end, or not that node,
    answers.

    What its methods do here is what they do where no front end is configured.
    """

    def tables(self) -> tuple[TableInfo, ...]:
        """Return the tables. It is called with every look at the catalogue: quick, without retries."""
        return ()

    def databases(self) -> tuple[str, ...]:
        """Return the databases, with tables and without. Raises as `tables` does."""
        return ()

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        raise _unconfigured()

    def drop_database(self, name: str) -> None:
        raise _unconfigured()

    def read_view(self, names: Sequence[TableName]) -> ReadView:
        """Return the view that one statement reads. Raises NotFound."""
        raise _unconfigured()

    def scan(self, address: str, request: ScanRequest, timeout_s: float) -> BatchStream:
        """Scan tablets at a node. `timeout_s` is for all of its rows. Raises NotYet, StaleSnapshot, NotFound,
        Corrupted."""
        raise _unconfigured()

    def pin(self, address: str, request: Pin) -> frozenset[TabletId]:
        """Pin versions at a node for a statement; return the tablets that are pinned."""
        raise _unconfigured()

    def unpin(self, address: str, request: Unpin) -> None:
        """Unpin what a statement has pinned at a node."""
        raise _unconfigured()

    def ping(self, address: str, within_s: float) -> None:
        """Raise Unavailable when the node does not answer even this in time."""
        raise _unconfigured()

    def create(self, definition: StoredTable, *, if_not_exists: bool = False) -> TableInfo:
        raise _unconfigured()

    def drop(self, name: TableName) -> None:
        raise _unconfigured()

    def change_columns(self, name: TableName, changes: Sequence[ColumnChange]) -> TableInfo:
        raise _unconfigured()

    def truncate(self, name: TableName) -> TableInfo:
        raise _unconfigured()

    def add_partition(self, name: TableName, partition: AddPartition) -> TableInfo:
        raise _unconfigured()

    def drop_partition(self, name: TableName, partition: str, *, if_exists: bool = False) -> TableInfo:
        raise _unconfigured()

    def partitions(self, name: TableName) -> tuple[PartitionInfo, ...]:
        raise _unconfigured()

    def transaction(self, db: str, label: str) -> TransactionInfo:
        raise _unconfigured()

    def transactions(self, db: str, like: str) -> tuple[TransactionInfo, ...]:
        raise _unconfigured()

    def close(self) -> None: ...


class RemoteSource(StoredTablesClient):
    """Endpoints over REST, nodes over Flight. Owns both clients."""

    def __init__(self, urls: Sequence[str], token: str, *, ca: Path | None = None) -> None:
        super().__init__(urls, token, ca=ca)
        self._nodes = StorageClients(token)

    def scan(self, address: str, request: ScanRequest, timeout_s: float) -> BatchStream:
        return self._nodes.at(address).scan(request, timeout_s)

    def pin(self, address: str, request: Pin) -> frozenset[TabletId]:
        return frozenset(self._nodes.at(address).pin(request).tablets)

    def unpin(self, address: str, request: Unpin) -> None:
        self._nodes.at(address).unpin(request)

    def ping(self, address: str, within_s: float) -> None:
        self._nodes.at(address).ping(within_s)

    def close(self) -> None:
        super().close()
        self._nodes.close()


class NoSource(StoredSource):
    """The source where no frontend is configured."""

    def close(self) -> None:
        """Do nothing, as nothing is open."""


def _unconfigured() -> Unavailable:
    return Unavailable(
        "this query service knows no front end",
        action="set RTOLAP_STREAM_LOAD_ENDPOINTS and start it again",
    )
