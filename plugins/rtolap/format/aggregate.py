"""Group-by."""
from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rtolap.model.cube import Schema


def aggregate_events(schema: Schema, table: pa.Table) -> dict[int, pa.Table]:
    """Decoded events → segment start in ms → local table."""
    raise NotImplementedError


def merge_tables(
    schema: Schema,
    tables: Sequence[pa.Table],
    dimensions: Sequence[str] | None = None,
    partials: Sequence[str] | None = None,
) -> pa.Table:
    """Local tables → one local table, grouped by `dimensions` (default: all), with `partials` (default: all)."""
    raise NotImplementedError


def to_plain(schema: Schema, table: pa.Table) -> pa.Table:
    """Local table → plain table (strings plain, sketches as bytes)."""
    raise NotImplementedError
