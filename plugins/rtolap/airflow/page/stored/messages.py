"""The answers of the routes of these views, as JSON. Times are milliseconds since the epoch."""

from __future__ import annotations

import msgspec

from rtolap.airflow.page.tasks import TaskLink
from rtolap.protocols.loader.letters import Letter
from rtolap.protocols.stored_tables.messages import TabletReplicaInfo
from rtolap.protocols.stream_load.error_rows import ErrorRow


class StoredTableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored table in the list."""

    db: str
    name: str
    model: str
    partitions: int
    created_ms: int


class StorageNode(msgspec.Struct, frozen=True, kw_only=True):
    """A storage node. state: open, draining, away or lost, in capitals."""

    name: str
    state: str
    replicas: int
    held_bytes: int


class ReplicaMove(msgspec.Struct, frozen=True, kw_only=True):
    tablet: str
    from_node: str
    to_node: str
    reason: str
    state: str


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """Stored tables, and the storage nodes that have them.

    Attributes:
        nodes_error: why nodes and moves are missing; empty if they are not.
    """

    now_ms: int
    databases: tuple[str, ...]
    tables: tuple[StoredTableRow, ...]
    nodes: tuple[StorageNode, ...]
    moves: tuple[ReplicaMove, ...]
    nodes_error: str = ""


class StoredPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a stored table.

    Attributes:
        health: of its tablets: READABLE where all replicas have the visible version, BEHIND where some lack
            it, UNREADABLE where no replica of a tablet has it; CHANGING where the two answers that it is made
            of are of different versions.
        fresh: replicas that have the visible version, of `replicas`.
        unreadable: buckets of which no replica has it.
    """

    name: str
    visible_version: int
    committed_version: int
    tablets: int
    replicas: int
    fresh: int
    unreadable: tuple[int, ...]
    health: str


class StoredTablePage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored table.

    Attributes:
        replicas: of its tablets, as their nodes report them: those with a problem first, then those with most
            to compact.
        missing: why nodes have not reported, by name; of "" where none could be asked.
    """

    now_ms: int
    db: str
    name: str
    partitions: tuple[StoredPartition, ...]
    replicas: tuple[TabletReplicaInfo, ...] = ()
    missing: dict[str, str] = {}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction.

    Attributes:
        took_ms: until it ended; None while it runs.
        rows: those that it has loaded; None where that is not known.
        has_errors: it has rejected rows, which can be asked for while they are kept.
    """

    txn_id: int
    label: str
    state: str
    tables: tuple[str, ...]
    began_ms: int
    took_ms: int | None
    reason: str
    rows: int | None = None
    has_errors: bool = False


class LoadList(msgspec.Struct, frozen=True, kw_only=True):
    """The latest transactions with such a label.

    Attributes:
        states: number of them by state; of those listed, not of all.
        cut: there may be older ones.
    """

    now_ms: int
    loads: tuple[Load, ...]
    states: dict[str, int]
    cut: bool


class LoaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A loader, as its process states it, or as its agent does.

    Attributes:
        state: of the job; of the process on the agent while the job's is not known.
        error: why its figures are missing; empty if they are not. Figures are None then.
        reason: why the job, or its process, is in its state.
        task: that waits for its process; None where no task of Airflow does.
    """

    name: str
    state: str
    phase: str = ""
    table: str = ""
    topic: str = ""
    lag_records: int | None = None
    rows_per_s: float | None = None
    rows_loaded: int | None = None
    rows_rejected: int | None = None
    loaded_ms: int | None = None
    reason: str = ""
    error: str = ""
    task: TaskLink | None = None


class Loaders(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    loaders: tuple[LoaderRow, ...]


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of a loader, the newest first.

    Attributes:
        counts: number of all letters by state, as far as the ledger knows them.
        reasons: number of letters by reason, among those that were looked at.
        cut: there are older ones.
    """

    now_ms: int
    loader: str
    topic: str
    letters: tuple[Letter, ...]
    counts: dict[str, int]
    reasons: dict[str, int]
    cut: bool


class ErrorReason(msgspec.Struct, frozen=True):
    """A reason, and how many of the rows that are kept were rejected for it."""

    reason: str
    rows: int


class ErrorPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rejected rows of a load, a page of them.

    Attributes:
        first: the place of the first of `rows` among those of the reason that was asked for.
        total: how many of these are kept.
        reasons: of all that are kept, the most frequent first.
        left_out: how many more were rejected, and not kept.
    """

    now_ms: int
    label: str
    first: int
    total: int
    rows: tuple[ErrorRow, ...]
    reasons: tuple[ErrorReason, ...]
    left_out: int
