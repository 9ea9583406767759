"""Partial rows of several sources → one table. Merging is associative, so leaving rows apart is exact too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from rtolap.format.schema import physical_schema, select_partials
from rtolap.query.plan import CubeRead


def group_partials(read: CubeRead, table: pa.Table) -> pa.Table:
    """One row per combination of dimensions, where no sketch is asked for; sketches stay as they are.

    A read without dimensions over no rows stays empty.
    """
    schema = physical_schema(read.schema, read.dimensions, read.partials, plain=True)
    partials = select_partials(read.schema, read.partials)
    if any(partial.op == "hll" for partial in partials) or table.num_rows < 2:
        return table.select(schema.names).cast(schema)
    operations: list[Any] = [(partial.name, partial.op) for partial in partials]
    grouped = table.group_by(list(read.dimensions), use_threads=True).aggregate(operations)
    renamed = grouped.rename_columns(
        [name if name in read.dimensions else name.rsplit("_", 1)[0] for name in grouped.column_names]
    )
    return renamed.select(schema.names).cast(schema)


def merge(read: CubeRead, tables: Iterable[pa.Table]) -> pa.Table:
    """All tables under the read's schema. Raises pyarrow.ArrowInvalid for columns of another type."""
    schema = physical_schema(read.schema, read.dimensions, read.partials, plain=True)
    return pa.concat_tables(
        [schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)]
    )
