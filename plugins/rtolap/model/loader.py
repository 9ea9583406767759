"""A loader brings rows of a topic into a table, through Stream Load, each exactly once."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from rtolap.model.formats.record_format import FormatName, RecordFormat, record_format
from rtolap.model.stored.table import PartitionUnit
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER, VALUE, text_sources
from rtolap.model.value_paths import path_steps

# host:port, an IPv6 host in brackets
SQL_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+)\]):(\d{1,5})")

LoaderFormat = Literal["arrow", "json", "csv"]
LoaderTarget = Literal["rtolap", "doris", "starrocks"]
OPERATION_COLUMN = "rtolap_operation"  # of rows out of an envelope, beside the table's columns
RedirectPolicy = Literal["public", "private", "direct", "public-private", "random-be"]


class LoaderColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Column `name` of the table is read from `path` of the record (`airport.origin`), by default its name.

    Attributes:
        format: how dates and times are written there; see `TimeColumn`.
        type: the type as which the value is read. A column that the table lacks needs one: it is sent for
            the server's expressions only. So does a column whose type no loader knows.
        default: the value of a record that lacks the column, in place of the table's default.
        missing: the value of a record that lacks the column: null, or the default. `auto` is null where the
            table is known to take it, else the default.
        source: where it is read, as in a `Column`.
    """

    name: str
    path: str | None = None
    format: str = "iso8601"
    type: str | None = None
    default: str | None = None
    missing: Literal["auto", "null", "default"] = "auto"
    source: str = VALUE

    @property
    def json_path(self) -> tuple[str, ...]:
        return path_steps(self.path or self.name)


class LoaderBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A batch ends with the first of these bounds that it reaches; `bytes` are of the records' values."""

    rows: int = 200_000
    bytes: int = 64 << 20
    interval_ms: int = 5_000


class LoaderRejects(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy for refused records. They are stored with their reasons.

    Attributes:
        tolerance_percent: a batch with more refused records than this stops the loader; 0 tolerates none.
        to: the topic `<topic>.<loader>.rejects`, or a file.
    """

    tolerance_percent: int = 0
    to: Literal["topic", "file"] = "topic"


class SinkPartitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Partitions that the loader makes in UTC, for servers whose tables make none by themselves.

    Attributes:
        sql: the server's MySQL endpoint, host:port.
        column: the partition column.
        unit: the length of a partition.
        ahead: number of partitions after the present one.
        behind: number of partitions before the present one.
        every_ms: interval at which the loader looks for missing partitions.
        user: by default the sink's.
        password_file: by default the sink's.
    """

    sql: str
    column: str
    unit: PartitionUnit = "day"
    ahead: int = 3
    behind: int = 0
    every_ms: int = 600_000
    user: str | None = None
    password_file: str | None = None
    ca_file: str | None = None

    @property
    def host_port(self) -> tuple[str, int] | None:
        """Return host and port of `sql`; None where that is no address."""
        found = SQL_ADDRESS.fullmatch(self.sql)
        if found is None or not 0 < int(found[3]) < 1 << 16:
            return None
        return found[1] or found[2], int(found[3])


class SinkBackends(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The backends to which front ends may redirect requests, with the credentials.

    Attributes:
        plain: hosts that speak plain HTTP: `host`, `host:port`, `*.domain` or a network (`10.0.0.0/8`).
            If there are any, plain requests go to no other host.
        redirect_policy: the addresses that Doris chooses among.
    """

    plain: tuple[str, ...] = ()
    redirect_policy: RedirectPolicy | None = None


class SinkMerge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The effect of rows on a table that deletes by loads.

    Attributes:
        type: `append` writes all rows, `delete` deletes all, `merge` deletes those that meet `delete`.
        delete: the condition, in the server's SQL.
    """

    type: Literal["append", "delete", "merge"] = "append"
    delete: str | None = None


class LoaderSink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The server that a loader writes to.

    Attributes:
        target: the interface that the server speaks.
        urls: addresses of the server; none stands for those of the settings.
        password_file: the file that holds the password.
        format: Arrow is for this product's endpoints, JSON and CSV for Doris and StarRocks.
        sequence_column: the column that says which row of a key is the latest.
        headers: further headers of each load; see `model.load_headers`.
        label_kept_ms: time for which the server surely remembers a finished label that nobody has
            acknowledged. An unknown label says nothing after it. It counts only where the server drops labels
            by itself.
        label_kept_count: number of labels of a database that the server surely remembers; likewise.
    """

    urls: tuple[str, ...] = ()
    target: LoaderTarget = "rtolap"
    user: str = "root"
    password_file: str | None = None
    ca_file: str | None = None
    backends: SinkBackends = SinkBackends()
    format: LoaderFormat = "arrow"
    sequence_column: str | None = None
    merge: SinkMerge = SinkMerge()
    headers: dict[str, str] = {}
    two_phase: bool = False
    timeout_ms: int = 600_000
    label_kept_ms: int = 6 * 3_600_000
    label_kept_count: int = 2_000
    partitions: SinkPartitions | None = None


class LoaderApplication(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The loader is the unit (its own name, `key`) of `level` of the application `name`: that level's output
    is held behind what the table shows. Its `unit_lease` has to outlast the loader's absence."""

    name: str
    level: str
    key: int = 0


class LoaderProcesses(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The processes that share the topic's partitions.

    Attributes:
        min: number of processes while little is left to load.
        max: number of processes at most.
        shares: number of the parts that the partitions are divided into, which move between processes; by
            default twice `max`, and no more than the topic has partitions. It counts when a job is divided.
        lag_records: records of lag for each further process.
        up_after_ms: for so long the lag asks for more processes before they are started.
        down_after_ms: for so long fewer processes are enough before one is stopped.
    """

    min: int = 1
    max: int = 1
    shares: int | None = None
    lag_records: int = 1_000_000
    up_after_ms: int = 30_000
    down_after_ms: int = 300_000


def share_of_partition(partition: int, shares: int) -> int:
    """Return the number of the share that a partition is in."""
    return partition % shares


class Loader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A loader of a Kafka topic into a table.

    Attributes:
        columns: only those whose place or format differs from the table's need be named.
        start: where a job begins; it counts once in the job's life.
        parallel: number of batches that are sent at once.
        order: `auto` sends one batch at a time where the table keeps the latest value of a key, or may do so,
            and has no sequence column that says which one that is. `none`: batches may overtake each other.
        truncation: the policy for records that were read and that the topic's log has lost: the loader stops.
            Or it drops them where none of them was sent, and reads on where the logs diverge.
        watermark_records: as in a `Table`; the control records of such a topic are no rows, and are not
            refused.
        kafka_cluster: as in a `Table`: the cluster of the topic and of the topic of its rejects.
        processes: number of the processes that share its partitions, or how it follows from the lag. None for
            one process and partitions that are not divided.
        format: how the records are written, as in a `Table`.
    """

    name: str
    topic: str
    database: str
    table: str
    columns: tuple[LoaderColumn, ...] = ()
    start: Literal["earliest", "latest"] = "earliest"
    batch: LoaderBatch = LoaderBatch()
    parallel: int = 2
    order: Literal["auto", "always", "none"] = "auto"
    truncation: Literal["stop", "drop"] = "stop"
    unknown_columns: Literal["ignore", "reject"] = "ignore"
    record_bytes_max: int = 1 << 20
    rejects: LoaderRejects = LoaderRejects()
    sink: LoaderSink = LoaderSink()
    application: LoaderApplication | None = None
    watermark_records: Literal["header", "field"] | None = None
    watermark_field: str = "rtolap_watermark"
    kafka_cluster: str = DEFAULT_KAFKA_CLUSTER
    processes: int | LoaderProcesses | None = None
    format: FormatName | RecordFormat = "json"

    @property
    def record_format(self) -> RecordFormat:
        return record_format(self.format)

    @property
    def delivery(self) -> LoaderSink:
        """Return the sink as rows are sent to it: those of an envelope are written or deleted as it says."""
        if self.record_format.envelope == "none":
            return self.sink
        merge = SinkMerge("merge", f"{OPERATION_COLUMN} = 'd'")
        return msgspec.structs.replace(self.sink, merge=merge)

    @property
    def text_sources(self) -> tuple[str, ...]:
        """See `Table`."""
        return text_sources(column.source for column in self.columns)

    @property
    def sharing(self) -> LoaderProcesses | None:
        """Return how processes share the partitions; None where they do not."""
        if isinstance(self.processes, int):
            return LoaderProcesses(min=self.processes, max=self.processes)
        return self.processes
