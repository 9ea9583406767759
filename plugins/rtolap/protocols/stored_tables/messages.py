"""The catalogue of stored tables over REST, below `/api/v1/` of a front end; bearer token.

    GET    /stored-tables                              TableInfo of all
    POST   /stored-tables          CreateTable         the one that is there now
    GET    /stored-tables/{db}/{table}                 TableInfo
    DELETE /stored-tables/{db}/{table}                 {}
    POST   /stored-tables/{db}/{table}/columns         ChangeColumns -> TableInfo
    POST   /stored-tables/{db}/{table}/truncate        TableInfo
    GET    /stored-tables/{db}/{table}/partitions      PartitionInfo of all
    GET    /stored-tables/{db}/{table}/tablets         TableTablets: replicas as the nodes report them now
    POST   /stored-tables/{db}/{table}/partitions      AddPartition -> TableInfo
    DELETE /stored-tables/{db}/{table}/partitions/{partition}[?if_exists=true]     TableInfo
    POST   /stored-tables/{db}/{table}/loaded-versions LoadedVersionsRequest -> LoadedVersions
    POST   /read-views             ReadViewRequest     ReadView
    GET    /transactions/{db}/{label}                  TransactionInfo
    GET    /transactions/{db}?like=pattern             TransactionInfo of those, the latest 1000
    GET    /stored-databases                           names of all
    POST   /stored-databases       CreateDatabase      {}
    DELETE /stored-databases/{db}                      {}

Changes are made by the master; other front ends answer 307 to it. One that comes again with the
Idempotency-Key of its first time (`request_ids`) is answered as it was then, and not made again. Errors are
`base.errors`, as JSON.
"""

from __future__ import annotations

import msgspec

from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import DefinedTable, StoredSchema
from rtolap.model.stored.table import StoredColumn, StoredTable

API = "/api/v1"


class TableInfo(DefinedTable, frozen=True):
    """`definition` is what it was created with; its columns as they are now stand in `schema`."""

    partitions: tuple[PartitionRange, ...] = ()


class TableName(msgspec.Struct, frozen=True, order=True):
    db: str
    name: str

    def __str__(self) -> str:
        return f"{self.db}.{self.name}"


class CreateTable(msgspec.Struct, frozen=True):
    """The creation of a stored table.

    Attributes:
        if_not_exists: the table that is there stays, whatever it looks like. Otherwise one of the same
            definition is left as it is, and another one is refused.
    """

    definition: StoredTable
    if_not_exists: bool = False


class CreateDatabase(msgspec.Struct, frozen=True):
    """A database that is there before its first table.

    Attributes:
        if_not_exists: one that is there stays.
    """

    name: str
    if_not_exists: bool = False


class AddColumn(msgspec.Struct, frozen=True, tag="add"):
    column: StoredColumn


class DropColumn(msgspec.Struct, frozen=True, tag="drop"):
    name: str


class RenameColumn(msgspec.Struct, frozen=True, tag="rename"):
    name: str
    new_name: str


ColumnChange = AddColumn | DropColumn | RenameColumn


class ChangeColumns(msgspec.Struct, frozen=True):
    """All of them, in order, or none."""

    changes: tuple[ColumnChange, ...]


class AddPartition(msgspec.Struct, frozen=True):
    """A request to add the partition `[start_ms, end_ms)`, in milliseconds since the epoch in UTC.

    The range is a calendar unit of the table, and `name` is the table's name for that unit.

    Attributes:
        start_ms: None lets the partition begin where the last one below it ends.
        if_not_exists: True leaves an existing partition of that name alone.
    """

    name: str
    start_ms: int | None
    end_ms: int
    if_not_exists: bool = False


class PartitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a stored table.

    Attributes:
        replicas: of all buckets together. Versions as in the ledger.
    """

    range: PartitionRange
    visible_version: int
    committed_version: int
    buckets: int
    replicas: int


class TabletReplicaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of a tablet, as its node reports it.

    Attributes:
        rows: those in files, before merging, with deleted ones; `bytes` too.
        rowsets: sets of files, each of one version or of several that compaction has joined.
        pending_files: files that the next compaction joins; 0 where there is none to do.
        compacting_since_ms: when the compaction that runs began; None where none runs.
        compacted_ms: when one has ended last, since the node started; None where none has.
        problem: why the tablet has stopped, or its last compaction failed; "" for neither.
    """

    partition: str
    bucket: int
    node: str
    version: int
    rowsets: int
    files: int
    rows: int
    bytes: int
    pending_files: int
    compacting_since_ms: int | None = None
    compacted_ms: int | None = None
    problem: str = ""


class TableTablets(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of a table, by partition, bucket and node.

    Attributes:
        missing: why a node that lives has not answered, by its name. Its replicas are not listed.
    """

    replicas: tuple[TabletReplicaInfo, ...]
    missing: dict[str, str] = {}


class LoadedVersionsRequest(msgspec.Struct, frozen=True):
    """A request for what was loaded beyond known versions, by partition.

    Attributes:
        after: the versions that the caller knows; a partition that is not in it is new to the caller.
        incarnations: those of the partitions as the caller knows them.
    """

    after: dict[str, int] = {}
    incarnations: dict[str, int] = {}


class LoadedVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The visible versions of a table.

    Attributes:
        versions: by partition.
        incarnations: of the partitions; one that was dropped and made again has another.
        rows: rows that were loaded in the versions beyond those that the caller knows; None where the ledger
            does not know all of these loads any more.
    """

    versions: dict[str, int]
    incarnations: dict[str, int]
    rows: int | None = None


class ReadViewRequest(msgspec.Struct, frozen=True):
    tables: tuple[TableName, ...]


class TabletView(msgspec.Struct, frozen=True):
    """A tablet and its replicas, as readers see them.

    Attributes:
        nodes: those known to have the version, in order of their names.
    """

    bucket: int
    nodes: tuple[str, ...]


class PartitionView(msgspec.Struct, frozen=True):
    range: PartitionRange
    version: int
    tablets: tuple[TabletView, ...]
    incarnation: int = 0


class TableView(msgspec.Struct, frozen=True):
    table_id: int
    db: str
    name: str
    schema: StoredSchema
    partitions: tuple[PartitionView, ...]


class ReadView(msgspec.Struct, frozen=True):
    """Versions of all partitions that were visible at one moment.

    Attributes:
        nodes: their Flight addresses, as far as they are known.
    """

    tables: tuple[TableView, ...]
    nodes: dict[str, str]


class TransactionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A load as SHOW TRANSACTION shows it. Instants in ms by the ledger's clock.

    Attributes:
        row_count: the rows that it has loaded; None before that, and where it is not known.
        error_url: where its rejected rows are, for a limited time; None where it has none. Who knows it may
            read them.
    """

    txn_id: int
    db: str
    label: str
    state: str
    tables: tuple[str, ...]
    began_at_ms: int
    committed_at_ms: int | None
    finished_at_ms: int | None
    deadline_ms: int
    reason: str
    row_count: int | None = None
    error_url: str | None = None
