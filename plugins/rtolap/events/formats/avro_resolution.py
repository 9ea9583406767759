"""What columns want of a reader's schema, in terms of a writer's: names by alias, and defaults.

The reader's schema is optional, and says no more than that: which values fit is said by the columns' types.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from rtolap.base.errors import DefinitionError
from rtolap.events.formats.columns import Wanted
from rtolap.model.formats.avro_schema import AvroType

UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


def resolved(wanted: Wanted, writer: AvroType, reader: AvroType) -> Wanted:
    """Return what is wanted of values of the writer's type, where `wanted` names fields of the reader's.

    A field that the reader's schema does not know is looked for under its own name.

    Raises DefinitionError where two fields of the reader are one of the writer.
    """
    of_writer, of_reader = _record(writer), _record(reader)
    if of_writer is None or of_reader is None:
        return wanted
    written, known = dict(of_writer.fields), dict(of_reader.fields)
    found = Wanted(wanted.path)
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


def _record(kind: AvroType) -> AvroType | None:
    """Return the record that a value may be; None where it is none."""
    branches = kind.branches if kind.kind == "union" else (kind,)
    return next((branch for branch in branches if branch.kind == "record"), None)


def _constants(wanted: Wanted, kind: AvroType, default: Any) -> list[tuple[tuple[str, ...], pa.Scalar]]:
    """Return the values that a default gives to the columns that are wanted of it."""
    if default is None:
        return []
    found = [] if wanted.path is None else [(wanted.path, _scalar(kind, default))]
    record = _record(kind)
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
