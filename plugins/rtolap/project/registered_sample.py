"""Avro and Protobuf records that name registered schemas: columns by the schema, values by our own reader.

The schema of the newest id says which columns there are. Records of other schemas are read as they would be
in a table with these columns; a column that refuses one of them is left out later, as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.events.formats.framing import FRAME_BYTES
from rtolap.events.formats.protobuf_types import file_of_schema, message_at
from rtolap.events.formats.readers import Registries
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.model.formats.avro_schema import AvroType, parse_avro_schema
from rtolap.model.formats.record_format import FormatName, RecordFormat
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.project.records import Record, read_as
from rtolap.project.values import DEPTH_MAX, Leaf, Sample, kind_of

_KINDS: dict[str, FormatName] = {"AVRO": "avro", "PROTOBUF": "protobuf"}
_SCHEMAS_MAX = 50  # that are asked for
_RECORD_TIME = "time_of_the_record"
_AVRO_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
    "enum": "string",
}
_TYPES = FieldDescriptor
_PROTOBUF_TYPES = {
    _TYPES.CPPTYPE_INT32: "int",
    _TYPES.CPPTYPE_INT64: "bigint",
    _TYPES.CPPTYPE_UINT32: "bigint",
    _TYPES.CPPTYPE_UINT64: "decimal(20,0)",
    _TYPES.CPPTYPE_DOUBLE: "double",
    _TYPES.CPPTYPE_FLOAT: "double",
    _TYPES.CPPTYPE_BOOL: "boolean",
    _TYPES.CPPTYPE_ENUM: "string",
}
_WELL_KNOWN = {"google.protobuf.Timestamp": "timestamp"}

Declared = tuple[tuple[str, ...], str, str]  # path, type, and why no column has it


def registered_format(values: Sequence[bytes], registry: str, registries: Registries) -> FormatName:
    """Return the format of framed records by the newest schema that they name. Raises DefinitionError."""
    _, registered = _newest(values, registry, registries)
    if registered.kind not in _KINDS:
        raise DefinitionError(
            "records of an unknown format", expected=", ".join(_KINDS), found=registered.kind
        )
    return _KINDS[registered.kind]


def _newest(values: Sequence[bytes], registry: str, registries: Registries) -> tuple[bytes, RegisteredSchema]:
    """Return a record whose schema has the highest id of those that the registry has, and that schema."""
    by_id = {_schema_id(value): value for value in values}
    source = registries(registry)
    for schema_id in sorted(by_id, reverse=True)[:_SCHEMAS_MAX]:
        try:
            return by_id[schema_id], source.schema(schema_id)
        except NotFound:
            continue  # of bytes that only look like it; readers refuse the record
    raise DefinitionError(
        "no schema of these records is known",
        expected=f"one that registry {registry} has",
        found=f"ids {', '.join(map(str, sorted(by_id)[:5]))}",
        action="name the registry by --registry",
    )


def registered_sample(
    records: Sequence[Record], form: FormatName, registry: str, registries: Registries
) -> Sample:
    """Return what records of this format hold. Raises DefinitionError, Unavailable."""
    broken_as = f"a record of {form} with the id of a schema that registry {registry} has"
    framed = [record.value for record in records if record.value is not None and is_framed(record.value)]
    if not framed:
        return Sample(RecordFormat(type=form, registry=registry), [], {}, [], [], broken_as)
    declared, message = _declared(framed, form, registry, registries)
    made = RecordFormat(type=form, registry=registry, message=message)
    found = [(steps, kind) for steps, kind, why_not in declared if not why_not]
    left_out = [(".".join(steps), why_not) for steps, _, why_not in declared if why_not]
    leaves, sound = _read(records, made, found, registries)
    return Sample(made, leaves, dict(found), sound, left_out, broken_as)


def _declared(
    values: Sequence[bytes], form: FormatName, registry: str, registries: Registries
) -> tuple[list[Declared], str | None]:
    """Return what the newest schema declares, and the name of its message."""
    value, registered = _newest(values, registry, registries)
    if _KINDS.get(registered.kind) != form:
        raise DefinitionError(
            f"schema {_schema_id(value)} of registry {registry}", expected=form, found=registered.kind
        )
    if form == "avro":
        return list(_avro_leaves(parse_avro_schema(registered.text), (), 0)), None
    file = file_of_schema(registered, registries(registry).referenced)
    message = message_at(file, _positions(value))
    return list(_message_leaves(message, (), 0)), message.full_name


def _read(
    records: Sequence[Record],
    form: RecordFormat,
    found: Sequence[tuple[tuple[str, ...], str]],
    registries: Registries,
) -> tuple[list[Leaf], list[Record]]:
    """Return what stands at each path, read as a table would that has the record's own time."""
    names = {f"c{place}": steps for place, (steps, _) in enumerate(found)}
    columns = [
        Column(name, kind, path=".".join(steps)) for name, (steps, kind) in zip(names, found, strict=True)
    ]
    columns.append(Column(_RECORD_TIME, "timestamp", source="timestamp"))
    table = Table(
        name="sample", topic="sample", columns=tuple(columns), time=TimeColumn(_RECORD_TIME), format=form
    )
    now_ms = max(record.create_ms for record in records)
    decoded = read_as(table, names, records, now_ms=now_ms, registries=registries)
    sound = [records[place] for place in decoded.places.tolist()]
    leaves = []
    for name, (steps, kind) in zip(names, found, strict=True):
        leaf = Leaf(steps)
        leaf.values = [each for each in decoded.table.column(name).to_pylist() if each is not None]
        if leaf.values:
            leaf.kinds = {"time"} if kind in ("timestamp", "date") else set(map(kind_of, leaf.values))
        leaves.append(leaf)
    return leaves, sound


def _avro_leaves(kind: AvroType, at: tuple[str, ...], depth: int) -> Iterator[Declared]:
    for name, inner in kind.fields:
        steps = (*at, name)
        branches = [each for each in inner.branches if each.kind != "null"]
        if inner.kind == "union" and len(branches) == 1:
            inner = branches[0]
        if inner.kind == "record" and depth < DEPTH_MAX:
            yield from _avro_leaves(inner, steps, depth + 1)
            continue
        column = _avro_column(inner)
        yield steps, column, "" if column else f"{inner}: no column reads it as a whole"


def _avro_column(kind: AvroType) -> str:
    """Return the type of column that takes all values; empty where none does."""
    if kind.logical == "decimal":
        return f"decimal({kind.precision},{kind.scale})"
    if kind.logical == "date":
        return "date"
    if kind.logical is not None:
        return "timestamp"
    return _AVRO_TYPES.get(kind.kind, "")


def _message_leaves(message: Descriptor, at: tuple[str, ...], depth: int) -> Iterator[Declared]:
    for each in message.fields:
        steps = (*at, each.name)
        inner = each.message_type
        if each.is_repeated:
            yield steps, "", "repeated; an item is a column with a path such as [0]"
        elif inner is None:
            column = "string" if each.type == _TYPES.TYPE_STRING else _PROTOBUF_TYPES.get(each.cpp_type, "")
            yield steps, column, "" if column else "bytes: no column holds them"
        elif inner.full_name in _WELL_KNOWN:
            yield steps, _WELL_KNOWN[inner.full_name], ""
        elif inner.full_name.startswith("google.protobuf.") and inner.full_name.endswith("Value"):
            value = inner.fields_by_name.get("value")
            column = "" if value is None else _PROTOBUF_TYPES.get(value.cpp_type, "")
            if value is not None and value.type == _TYPES.TYPE_STRING:
                column = "string"
            yield steps, column, "" if column else f"{inner.full_name}: no column reads it"
        elif depth < DEPTH_MAX:
            yield from _message_leaves(inner, steps, depth + 1)


def is_framed(value: bytes) -> bool:
    return len(value) >= FRAME_BYTES and value[0] == 0


def _schema_id(value: bytes) -> int:
    return int.from_bytes(value[1:FRAME_BYTES])


def _positions(value: bytes) -> tuple[int, ...]:
    """Return the positions that name a record's message: see `events.formats.framing.ProtobufFileReader`."""
    at = FRAME_BYTES

    def number() -> int:
        nonlocal at
        read = shift = 0
        while at < len(value) and shift < 64:
            octet = value[at]
            at += 1
            read |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return (read >> 1) ^ -(read & 1)
        raise DefinitionError(
            "a record names no message", expected="its positions", found=value[:20].hex(" ")
        )

    count = number()
    if not 0 <= count <= DEPTH_MAX * DEPTH_MAX:
        raise DefinitionError(
            "a record names no message", expected="its positions", found=value[:20].hex(" ")
        )
    return tuple(number() for _ in range(count)) or (0,)
