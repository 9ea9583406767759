"""Smallest and largest values of columns, and whether a predicate can hold within them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.filter import mask
from rtolap.cubes.format.index import to_scalar
from rtolap.model.predicate import And, Compare, In, IsNull, Or, Predicate, Scalar


class ColumnRange(msgspec.Struct, frozen=True):
    """Smallest and largest non-null value as predicate scalars (None: there is none); how many nulls."""

    min: Scalar
    max: Scalar
    nulls: int


def column_range(column: pa.Array) -> ColumnRange:
    nulls = column.null_count
    if pa.types.is_dictionary(column.type):
        used = pc.unique(column.indices.drop_null())
        column = column.dictionary.take(used)
    extremes = pc.min_max(column).as_py()
    return ColumnRange(to_scalar(extremes["min"]), to_scalar(extremes["max"]), nulls)


def can_match(
    ranges: Mapping[str, ColumnRange], types: Mapping[str, pa.DataType], predicate: Predicate | None
) -> bool:
    """False only when no row with these ranges can be kept; columns without a range are never ruled out."""
    match predicate:
        case And(terms=terms):
            return all(can_match(ranges, types, term) for term in terms)
        case Or(terms=terms):
            return any(can_match(ranges, types, term) for term in terms)
        case Compare(column=name) if name in ranges:
            return _compare(ranges[name], types[name], predicate)
        case In(column=name, values=values, negated=False) if name in ranges:
            return any(_compare(ranges[name], types[name], Compare(name, "eq", value)) for value in values)
        case In(column=name, values=values) if name in ranges and values:
            return all(_compare(ranges[name], types[name], Compare(name, "ne", value)) for value in values)
        case IsNull(column=name, negated=negated) if name in ranges:
            return ranges[name].max is not None if negated else ranges[name].nulls > 0
        case _:
            return True


def _compare(known: ColumnRange, kind: pa.DataType, predicate: Compare) -> bool:
    if known.min is None or predicate.value is None:
        return False
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    ends = pa.table({predicate.column: _typed([known.min, known.max], plain)})
    if predicate.op == "eq":
        at_least = mask(ends, Compare(predicate.column, "le", predicate.value))
        at_most = mask(ends, Compare(predicate.column, "ge", predicate.value))
        return bool(at_least[0].as_py() and at_most[1].as_py())
    if predicate.op == "ne":
        return bool(known.min != known.max or mask(ends, predicate)[0].as_py())
    return bool(pc.any(mask(ends, predicate)).as_py())


def _typed(values: list[Scalar], kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
