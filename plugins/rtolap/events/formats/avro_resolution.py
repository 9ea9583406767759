"""The wanted columns in terms of a writer's schema, by that of a reader: names by alias, and defaults.

The reader's schema is optional, and says no more than that: which values fit is said by the columns' types.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rtolap.base.errors import DefinitionError
from rtolap.events.formats.columns import Wanted, WantedItems
from rtolap.model.formats.avro_schema import AvroType, Kind

UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


def resolved(wanted: Wanted, writer: AvroType, reader: AvroType) -> Wanted:
    """Return what is wanted of values of the writer's type, where `wanted` names fields of the reader's.

    A field that the reader's schema does not know is looked for under its own name.

    Raises DefinitionError where two fields of the reader are one of the writer.
    """
    if wanted.items is not None or (_branch(writer, "map") and _branch(reader, "map")):
        return _resolved_items(wanted, writer, reader)
    of_writer, of_reader = _branch(writer, "record"), _branch(reader, "record")
    if of_writer is None or of_reader is None:
        return wanted
    written, known = dict(of_writer.fields), dict(of_reader.fields)
    found = Wanted(wanted.path, checks=wanted.checks, depth=wanted.depth)
    for name, child in wanted.fields.items():
        kind = known.get(name)
        names = (name, *of_reader.aliases.get(name, ()))
        there = next((each for each in names if each in written), None)
        if there in found.fields:
            raise DefinitionError(
                f"field {name} of the reader's schema stands for one of the writer that another stands for",
                expected="a field of its own",
                found=there,
            )
        if there is not None:
            found.fields[there] = child if kind is None else resolved(child, written[there], kind)
        elif kind is not None and name in of_reader.defaults:
            found.constants += _constants(child, kind, of_reader.defaults[name])
    return found


def _resolved_items(wanted: Wanted, writer: AvroType, reader: AvroType) -> Wanted:
    """Do as `resolved` with the items of an array, or the values of a map."""
    name: Kind = "map" if wanted.items is None else "array"
    of_writer, of_reader = _branch(writer, name), _branch(reader, name)
    if of_writer is None or of_reader is None or of_writer.items is None or of_reader.items is None:
        return wanted
    written, known = of_writer.items, of_reader.items
    if wanted.items is None:
        inside = {key: resolved(child, written, known) for key, child in wanted.fields.items()}
        return replace(wanted, fields=inside)
    by_index = {at: resolved(child, written, known) for at, child in wanted.items.by_index.items()}
    return replace(wanted, items=WantedItems(by_index, resolved(wanted.items.others, written, known)))


def _branch(kind: AvroType, name: Kind) -> AvroType | None:
    """Return the record, array or map that a value may be; None where it is none."""
    branches = kind.branches if kind.kind == "union" else (kind,)
    return next((branch for branch in branches if branch.kind == name), None)


def _constants(wanted: Wanted, kind: AvroType, default: Any) -> list[tuple[tuple[str, ...], pa.Scalar]]:
    """Return the values that a default gives to the columns that are wanted of it."""
    if default is None:
        return []
    found = [] if wanted.path is None else [(wanted.path, _scalar(kind, default))]
    if wanted.items is not None and isinstance(default, list):
        array = _branch(kind, "array")
        if array is not None and array.items is not None:
            for at, child in wanted.items.by_index.items():
                found += _constants(child, array.items, default[at] if at < len(default) else None)
        return found
    mapped = _branch(kind, "map")
    if mapped is not None and mapped.items is not None and isinstance(default, dict):
        for key, child in wanted.fields.items():
            found += _constants(child, mapped.items, default.get(key))
        return found
    record = _branch(kind, "record")
    if record is None or not isinstance(default, dict):
        return found
    kinds = dict(record.fields)
    for name, child in wanted.fields.items():
        if name in kinds and (name in default or name in record.defaults):
            found += _constants(child, kinds[name], default.get(name, record.defaults.get(name)))
    return found


def _scalar(kind: AvroType, default: Any) -> pa.Scalar:
    """Return a default, which stands in JSON, as a value of its type."""
    if kind.kind == "union":
        kind = next((branch for branch in kind.branches if branch.kind != "null"), kind)
    try:
        if kind.kind in ("bytes", "fixed"):
            octets = default.encode("latin-1")
            if kind.logical != "decimal":
                return pa.scalar(octets, pa.binary())
            number = Decimal(int.from_bytes(octets, "big", signed=True)).scaleb(-kind.scale)
            return pa.scalar(number, pa.decimal128(38, kind.scale))
        if kind.logical == "date":
            return pa.scalar(default, pa.int32()).cast(pa.date32())
        if kind.logical is not None:
            return pa.scalar(default, pa.timestamp(UNITS[kind.logical.rpartition("-")[2]]))
        return pa.scalar(default)
    except (AttributeError, ValueError, TypeError, pa.ArrowException) as error:
        raise DefinitionError(
            "a default of the reader's schema is none",
            expected=f"a value of type {kind}",
            found=repr(default),
        ) from error
