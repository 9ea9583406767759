"""Records of the ledger on transactions and partitions, as values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal

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
        row_count: the rows that it has loaded; None before its rows are there, and where it is not known.
        error_url: where its rejected rows are; None where it has none.
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
    row_count: int | None = None
    error_url: str | None = None


class BeginRequest(msgspec.Struct, frozen=True):
    """The request that begins a transaction: its label, and the id of the request.

    Attributes:
        timeout_ms: after which it may be aborted without a request.
        not_after_ms: when it begins at the latest, by the database's clock; None for any time.
    """

    db: str
    tables: tuple[str, ...]
    label: str
    request_id: str
    timeout_ms: int
    two_phase: bool = False
    keep_until_acknowledged: bool = False
    not_after_ms: int | None = None
    user_name: str | None = None


class LoadFigures(msgspec.Struct, frozen=True):
    """What is kept of a load for people: its rows, and where its rejected rows are. Fields as in
    `Transaction`."""

    row_count: int | None = None
    error_url: str | None = None


NO_FIGURES = LoadFigures()


class Partition(msgspec.Struct, frozen=True, order=True):
    """A partition of a table.

    Attributes:
        incarnation: distinguishes it from those that were dropped under its name; a table gives each number
            once. 0: it was made by a version that gave none.
    """

    db: str
    table: str
    name: str
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.db}.{self.table}/{self.name}"

    @classmethod
    def of(cls, row: Any) -> Partition:
        """Return the partition that a row of the ledger names."""
        return cls(row.db, row.tbl, row.part, row.incarnation)

    def columns(self) -> dict[str, object]:
        """Return the values by which rows of the ledger name it."""
        return {"db": self.db, "tbl": self.table, "part": self.name, "incarnation": self.incarnation}


class Tablet(msgspec.Struct, frozen=True, order=True):
    """A bucket of a partition; each of its replicas is on another node."""

    partition: Partition
    bucket: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.bucket}"


class Replica(msgspec.Struct, frozen=True, order=True):
    """A replica of a tablet.

    Attributes:
        version: up to which the node is known to have it.
        role: of a move: it joins the others, or leaves them; empty where it does neither.
    """

    tablet: Tablet
    node: str
    version: int
    role: Literal["", "joining", "leaving"] = ""


class MoveState(StrEnum):
    """The state of a replica's move. Legal transitions: `stored.frontend.moves.states`."""

    COPYING = "COPYING"
    SWITCHED = "SWITCHED"
    RETIRING = "RETIRING"


class MoveReason(StrEnum):
    LOST = "lost"
    RAISE = "raise"
    DRAIN = "drain"
    REBALANCE = "rebalance"


class ReplicaMove(msgspec.Struct, frozen=True):
    """A replica of a tablet that is made on a node, in the place of an old one or beside the others.

    Attributes:
        old_node: that of the replica whose place it takes; empty where it is one more.
        node: that of the new replica.
        fence_txn_id: the last transaction that may have voted before the switch was seen; 0 before that.
    """

    tablet: Tablet
    table_id: int
    old_node: str
    node: str
    reason: MoveReason
    state: MoveState = MoveState.COPYING
    fence_txn_id: int = 0


class PartitionVersions(msgspec.Struct, frozen=True):
    """Versions of a partition.

    Attributes:
        committed: the last one that was assigned.
        visible: up to which readers may read.
    """

    committed: int
    visible: int


TaskKind = Literal["create", "drop", "schema"]


class PendingTabletTask(msgspec.Struct, frozen=True):
    """A pending task of a node: to create or drop buckets of a partition, or, where `part` and `buckets` are
    empty, to take the table's present schema. `incarnation` is that of the partition.
    """

    table_id: int
    db: str
    tbl: str
    part: str
    node: str
    kind: TaskKind
    buckets: tuple[int, ...] = ()
    incarnation: int = 0

    @classmethod
    def of(
        cls, table_id: int, partition: Partition, node: str, kind: TaskKind, buckets: Iterable[int]
    ) -> PendingTabletTask:
        """Return the task for buckets of a partition."""
        names = (partition.db, partition.table, partition.name)
        return cls(table_id, *names, node, kind, tuple(sorted(buckets)), partition.incarnation)

    @property
    def partition(self) -> Partition:
        return Partition.of(self)


class StorageNode(msgspec.Struct, frozen=True):
    """A storage node as of its last heartbeat.

    Attributes:
        name: as it is configured.
        node_id: of its data.
        address: its Flight endpoint.
        free_bytes: of its disk.
        lease_until_ms: by the database's clock.
        body_url: where it takes bodies of loads; empty where it takes none.
        draining: True if its replicas are to go to other nodes, and it takes no new ones.
    """

    name: str
    node_id: str
    address: str
    free_bytes: int
    lease_until_ms: int
    body_url: str = ""
    draining: bool = False
