"""Partials are merged in Spark SQL by these texts, which builds and large reads of history share."""

from __future__ import annotations

from rtolap.aggregates.accumulator import Partial
from rtolap.column_types import ColumnType

_NAMES = {"timestamp": "timestamp_ntz"}  # the others are called as they are here


def spark_type(kind: ColumnType) -> str:
    """Return Spark's name of the type."""
    return _NAMES.get(kind.kind, str(kind))


def quoted(name: str) -> str:
    """Return the name of a column as Spark SQL reads it."""
    return "`" + name.replace("`", "``") + "`"


def merged(partial: Partial) -> str:
    """Return the expression that merges the partials of a group, in the partial's own type."""
    expression = partial.accumulator.spark_merge(quoted(partial.name), partial.type)
    return f"CAST({expression} AS {spark_type(partial.type)})"
