"""The format of a topic's records: how the bytes of a record's value become columns."""

from __future__ import annotations

from typing import Literal

import msgspec

OPERATION = "operation"
"""The source of the operation in an envelope, which is no source that a definition may name."""

FormatName = Literal["json", "csv", "avro", "protobuf"]


class RecordFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A format with its options. Each option belongs to the formats that its line names.

    Attributes:
        delimiter: csv: the character between two fields.
        quote: csv: the character around a field that holds delimiters; doubled inside of one. Empty: none.
        null: csv: the text of a field without quotes that stands for null.
        fields: csv: the names of the fields by position; empty: the columns in their declared order.
        schema: avro: the schema with which the records were written, as JSON; protobuf: a
            FileDescriptorSet in Base64.
        schema_file: the file that holds it, beside the definition. Its content takes the place of `schema`
            when the definition is read.
        registry: avro, protobuf: the schema registry that has the schemas. Each record names its own. A
            `schema` beside it, of avro, is the reader's: it gives names by alias and defaults.
        envelope: json, avro, of loaders: what stands around a row. `debezium`: changes of rows.
        keys: with an envelope: the columns that tell rows apart.
        message: protobuf: the full name of the records' message.
    """

    type: FormatName = "json"
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    fields: tuple[str, ...] = ()
    schema: str | None = None
    schema_file: str | None = None
    registry: str | None = None
    message: str | None = None
    envelope: Literal["none", "debezium"] = "none"
    keys: tuple[str, ...] = ()


def record_format(declared: FormatName | RecordFormat) -> RecordFormat:
    """Return the format that a definition names, alone or with options."""
    return declared if isinstance(declared, RecordFormat) else RecordFormat(type=declared)
