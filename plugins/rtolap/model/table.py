"""A stream table: a Kafka topic with typed columns and an event time. A lookup: a small table beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from rtolap.base.errors import NotFound
from rtolap.column_types import ColumnType, parse_type
from rtolap.model.formats.record_format import FormatName, RecordFormat, record_format
from rtolap.model.value_paths import path_steps

DEFAULT_KAFKA_CLUSTER = "default"  # the one that RTOLAP_KAFKA names

VALUE = "value"
HEADER = "header:"

TimeFormat = str  # epoch_s | epoch_ms | epoch_us | iso8601 | a strptime pattern


def text_sources(sources: Iterable[str]) -> tuple[str, ...]:
    """Return those of the sources that are the key or headers of records, each once."""
    return tuple(dict.fromkeys(each for each in sources if each == "key" or each.startswith(HEADER)))


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column of a stream table.

    Attributes:
        path: where the value stands inside of others (`airport.origin`, `legs[0].from`); None stands for the
            name.
        rounding: what happens to a value with more fractional digits than the decimal column has. `refuse`
            refuses its record, `half_up` rounds the value, halves away from zero.
        expression: computes the value out of other columns of the event; None: the value is read.
        source: where it is read: `value`, `key`, `header:<name>`, `timestamp`, `partition` or `offset` of the
            record.
        format: how a date or timestamp is written; that of the event time is the table's.
    """

    name: str
    type: str
    path: str | None = None
    rounding: Literal["refuse", "half_up"] = "refuse"
    expression: str | None = None
    source: str = VALUE
    format: TimeFormat = "iso8601"

    @property
    def column_type(self) -> ColumnType:
        return parse_type(self.type, binary=True)

    @property
    def json_path(self) -> tuple[str, ...]:
        return path_steps(self.path or self.name)


class TimeColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The column of the event time, and how the time is written.

    `zone` applies to formats that carry none; formats with an offset win over it.
    """

    column: str
    format: TimeFormat = "epoch_ms"
    zone: str = "UTC"


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A stream table.

    Attributes:
        host_column: the machine that logged an event, for watermarks by host.
        heartbeat_column: a record that is true in it is no event: its host has logged everything before its
            time.
        watermark_records: True where the topic carries the watermarks of the application that writes it, and
            control records, which are no events.
        watermark_field: the field of the values that may hold the watermark; a header of the records may hold
            it instead.
        where: only events that fulfil this expression are events of the table; None: all.
        kafka_cluster: the cluster of the topic and of its dead letters. Each host's operator declares how to
            reach it (`RTOLAP_KAFKA_CLUSTERS`).
        format: how the records are written; its name alone, or with options.
    """

    name: str
    topic: str
    columns: tuple[Column, ...]
    time: TimeColumn
    unknown_columns: Literal["ignore", "reject"] = "ignore"
    record_bytes_max: int = 1 << 20
    future_max_ms: int = 86_400_000
    host_column: str | None = None
    heartbeat_column: str | None = None
    watermark_records: Literal["header", "field"] | None = None
    watermark_field: str = "rtolap_watermark"
    where: str | None = None
    kafka_cluster: str = DEFAULT_KAFKA_CLUSTER
    format: FormatName | RecordFormat = "json"

    @property
    def record_format(self) -> RecordFormat:
        return record_format(self.format)

    @property
    def record_fields(self) -> tuple[str, ...]:
        """Return the names of the fields of a record that is read by position."""
        return self.record_format.fields or tuple(
            column.name for column in self.columns if column.expression is None and column.source == VALUE
        )

    @property
    def text_sources(self) -> tuple[str, ...]:
        """Return the sources beside values that the consumer has to read: the key and headers."""
        return text_sources(column.source for column in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise NotFound(f"table {self.name} has no column {name}")

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.topic}.dead-letters"


class Lookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A small table beside the cubes.

    Attributes:
        file: CSV with a header, or Parquet, which the query service reads whole.
        stored_table: `database.table`, read as it is when a statement reads it.
        keys: the columns that tell the stored table's rows apart.
    """

    name: str
    columns: tuple[Column, ...]
    file: str | None = None
    stored_table: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Return where the rows are."""
        return self.file if self.file is not None else f"stored table {self.stored_table}"
