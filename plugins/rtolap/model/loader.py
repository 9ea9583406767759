"""A loader: rows of a topic into a table, through Stream Load, each exactly once."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from rtolap.model.stored.table import PartitionUnit
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

# host:port, an IPv6 host in brackets
SQL_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]+)\]):(\d{1,5})")

LoaderFormat = Literal["arrow", "json", "csv"]


class LoaderColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Column `name` of the table is read from `path` of the record (`airport.origin`), by default its name.

    `format` says how dates and times are written there; see `TimeColumn`.
    """

    name: str
    path: str | None = None
    format: str = "iso8601"

    @property
    def json_path(self) -> tuple[str, ...]:
        return tuple((self.path or self.name).split("."))


class LoaderBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch ends with the first of these bounds that it reaches; `bytes` are of the records' values."""

    rows: int = 200_000
    bytes: int = 64 << 20
    interval_ms: int = 5_000


class LoaderRejects(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch with more than `tolerance_percent` refused records stops the loader; 0 tolerates none.

    What is refused is kept with its reason, in the topic `<topic>.<loader>.rejects` or in a file.
    """

    tolerance_percent: int = 0
    to: Literal["topic", "file"] = "topic"


class SinkPartitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The loader makes the table's partitions by `column`, each one `unit` in UTC: the present one, `ahead`
    after it and `behind` before it. For servers whose tables make none by themselves.

    `sql` is the server's MySQL endpoint, host:port; `user` and `password_file` are the sink's unless they are
    given. It is looked every `every_ms` whether one is missing.
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


class LoaderSink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`urls`: none means those of the settings. Arrow is for this product's endpoints, JSON and CSV for
    Doris. The password stands in a file.

    `label_kept_ms` and `label_kept_count`: how long the server surely remembers a finished label that nobody
    has acknowledged, and how many of a database. They count only where the server drops labels by
    itself. Beyond either, a label that is unknown says nothing.
    """

    urls: tuple[str, ...] = ()
    user: str = "root"
    password_file: str | None = None
    ca_file: str | None = None
    format: LoaderFormat = "arrow"
    two_phase: bool = False
    timeout_ms: int = 600_000
    label_kept_ms: int = 6 * 3_600_000
    label_kept_count: int = 2_000
    partitions: SinkPartitions | None = None


class LoaderApplication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The loader is the unit (its own name, `key`) of `level` of the application `name`: that level's output
    is held behind what the table shows. Its `unit_lease` has to outlast the loader's absence."""

    name: str
    level: str
    key: int = 0


class Loader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`columns` need only name those whose place or format differs. `start` counts once in a job's life.

    `parallel` batches are on their way at once. `order: auto` sends one at a time where the table keeps the
    latest value of a key and has no sequence column to say which that is.

    `watermark_records`: as of a `Table`; the control records of such a topic are no rows, and not refused.
    `kafka_cluster`: as of a `Table`, of the topic and of that of its rejects.

    `truncation`: what becomes of records that were read and that the topic's log has lost: the loader stops,
    or drops them where nothing of them was sent, and reads on where the logs diverge.
    """

    name: str
    topic: str
    database: str
    table: str
    columns: tuple[LoaderColumn, ...] = ()
    start: Literal["earliest", "latest"] = "earliest"
    batch: LoaderBatch = LoaderBatch()
    parallel: int = 2
    order: Literal["auto", "always"] = "auto"
    truncation: Literal["stop", "drop"] = "stop"
    unknown_columns: Literal["ignore", "reject"] = "ignore"
    record_bytes_max: int = 1 << 20
    rejects: LoaderRejects = LoaderRejects()
    sink: LoaderSink = LoaderSink()
    application: LoaderApplication | None = None
    watermark_records: Literal["header", "field"] | None = None
    watermark_field: str = "rtolap_watermark"
    kafka_cluster: str = DEFAULT_KAFKA_CLUSTER
