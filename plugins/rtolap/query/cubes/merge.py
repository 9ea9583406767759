"""Partial rows of several sources → one table. Merging is associative, so leaving rows apart is exact too."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rtolap.columnar.schema import select_partials
from rtolap.query.plan import CubeRead
from rtolap.scan.merge import merge_plain


def group_partials(read: CubeRead, table: pa.Table) -> pa.Table:
    """Return a row per combination of dimensions, with merged partials.

    Rows whose sums may overflow stay apart. A read without dimensions over no rows stays empty. Raises
    Corrupted for bytes that are no sketch.
    """
    schema = read.columns
    merged = merge_plain(table, read.dimensions, select_partials(read.schema, read.partials))
    return merged.select(schema.names).cast(schema)


def merge(read: CubeRead, tables: Iterable[pa.Table]) -> pa.Table:
    """Return all tables under the read's schema. Raises pyarrow.ArrowInvalid for columns of another type."""
    schema = read.columns
    same = [
        table if table.schema.equals(schema) else table.select(schema.names).cast(schema) for table in tables
    ]
    return same[0] if len(same) == 1 else pa.concat_tables([schema.empty_table(), *same])
