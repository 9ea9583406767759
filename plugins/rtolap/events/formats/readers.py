"""The reader of a format, for those who decode records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from google.protobuf.descriptor import Descriptor

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.events.formats.avro_reader import AvroReader
from rtolap.events.formats.csv_reader import CsvReader
from rtolap.events.formats.debezium import DebeziumReader
from rtolap.events.formats.framing import ChunkedReader, FramedReader, ProtobufFileReader
from rtolap.events.formats.protobuf_reader import ProtobufReader
from rtolap.events.formats.protobuf_types import file_of_schema, message_at
from rtolap.events.formats.reader import RecordReader
from rtolap.events.plan import JsonPlan
from rtolap.events.rows import RowReader
from rtolap.kafka.schema_registry import SchemaSource
from rtolap.model.formats.avro_schema import AvroType, parse_avro_schema
from rtolap.model.formats.protobuf_set import message_of_set
from rtolap.model.formats.record_format import RecordFormat

Registries = Callable[[str], SchemaSource]


def no_registries(name: str) -> SchemaSource:
    """Stand for the registries of a process that was given none. Raises DefinitionError."""
    raise DefinitionError(f"this process was given no schema registry {name}", expected="its registries")


def record_reader(
    plan: JsonPlan, form: RecordFormat, fields: Sequence[str], registries: Registries
) -> RecordReader:
    """Return a reader. `fields`: names of the fields of a record that is read by position.

    Raises DefinitionError where the columns cannot be read from such records, or the host does not know the
    registry.
    """
    if form.envelope == "debezium":
        bare = msgspec.structs.replace(form, envelope="none")
        return DebeziumReader(plan, form, lambda inner: record_reader(inner, bare, fields, registries))
    match form.type:
        case "json":
            return RowReader(plan)
        case "csv":
            return CsvReader(plan, form, fields)
        case "avro":
            if form.registry is None:
                return ChunkedReader(plan, AvroReader(plan, parse_avro_schema(form.schema or "")))
            source = registries(form.registry)
            reader = None if form.schema is None else parse_avro_schema(form.schema)
            return FramedReader(plan, lambda schema_id: _avro_of(plan, source, schema_id, reader))
        case "protobuf":
            return _protobuf(plan, form, registries)


def _protobuf(plan: JsonPlan, form: RecordFormat, registries: Registries) -> RecordReader:
    if form.registry is None:
        message = message_of_set(form.schema or "", form.message or "")
        return ChunkedReader(plan, ProtobufReader(plan, message))
    source = registries(form.registry)

    def of_schema(schema_id: int) -> ProtobufFileReader:
        registered = source.schema(schema_id)
        if registered.kind != "PROTOBUF":
            raise DefinitionError("a schema of another format", expected="PROTOBUF", found=registered.kind)
        file = file_of_schema(registered, source.referenced)
        return ProtobufFileReader(plan, lambda positions: of_message(message_at(file, positions)))

    def of_message(message: Descriptor) -> ProtobufReader:
        if form.message not in (None, message.full_name):
            raise NotFound(f"message {message.full_name} is not {form.message}")
        return ProtobufReader(plan, message)

    return FramedReader(plan, of_schema)


def _avro_of(plan: JsonPlan, source: SchemaSource, schema_id: int, reader: AvroType | None) -> AvroReader:
    registered = source.schema(schema_id)
    if registered.kind != "AVRO":
        raise DefinitionError("a schema of another format", expected="AVRO", found=registered.kind)
    if registered.references:
        raise DefinitionError(
            "a schema that refers to others", expected="one that holds all of its types", found="references"
        )
    return AvroReader(plan, parse_avro_schema(registered.text), reader)
