"""Records of the ledger on transactions and partitions, as values."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class TransactionState(StrEnum):
    """The state of a transaction, in the ledger and in responses. Legal transitions:
    `stored.frontend.transactions.states`."""

    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


RUNNING = (TransactionState.PREPARE, TransactionState.PRECOMMITTED, TransactionState.COMMITTED)
ABORTABLE = (TransactionState.PREPARE, TransactionState.PRECOMMITTED)
FINAL = (TransactionState.VISIBLE, TransactionState.ABORTED)


class Transaction(msgspec.Struct, frozen=True):
    """A load's transaction. Times are in milliseconds by the database's clock.

    Attributes:
        keep_until_acknowledged: True if the label is retained until its loader acknowledges it.
        abort_pending: True if the transaction is ABORTED and some nodes may still hold its rows.
        deadline_ms: when the transaction may be aborted without a request.
        user_name: its owner; None for a group of several users, and for transactions of older versions.
    """

    txn_id: int
    db: str
    label: str
    request_id: str
    state: TransactionState
    tables: tuple[str, ...]
    two_phase: bool
    keep_until_acknowledged: bool
    acknowledged: bool
    abort_pending: bool
    began_at_ms: int
    deadline_ms: int
    committed_at_ms: int | None
    finished_at_ms: int | None
    reason: str
    user_name: str | None


class Partition(msgspec.Struct, frozen=True, order=True):
    db: str
    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.db}.{self.table}/{self.name}"


class Tablet(msgspec.Struct, frozen=True, order=True):
    """A bucket of a partition; each of its replicas is on another node."""

    partition: Partition
    bucket: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.bucket}"


class Replica(msgspec.Struct, frozen=True, order=True):
    """A replica of a tablet. `version` is up to which the node is known to have it."""

    tablet: Tablet
    node: str
    version: int


class PartitionVersions(msgspec.Struct, frozen=True):
    """Versions of a partition.

    Attributes:
        committed: the last one that was assigned.
        visible: up to which readers may read.
    """

    committed: int
    visible: int


class PendingTabletTask(msgspec.Struct, frozen=True):
    """A pending task of a node: to create or drop buckets of a partition, or, where `part` and `buckets` are
    empty, to take the table's present schema.
    """

    table_id: int
    db: str
    tbl: str
    part: str
    node: str
    kind: Literal["create", "drop", "schema"]
    buckets: tuple[int, ...] = ()


class StorageNode(msgspec.Struct, frozen=True):
    """A storage node as of its last heartbeat.

    Attributes:
        name: as it is configured.
        node_id: of its data.
        address: its Flight endpoint.
        free_bytes: of its disk.
        lease_until_ms: by the database's clock.
        body_url: where it takes bodies of loads; empty where it takes none.
    """

    name: str
    node_id: str
    address: str
    free_bytes: int
    lease_until_ms: int
    body_url: str = ""
