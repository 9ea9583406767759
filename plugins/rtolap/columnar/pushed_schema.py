"""The columns of a scan's answer, which a storage node sends and its reader expects."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rtolap.columnar.schema import arrow_type
from rtolap.model.stored.pushed import Partials
from rtolap.model.stored.schema import StoredSchema


def rows_schema(schema: StoredSchema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of rows with these columns."""
    return pa.schema(
        [pa.field(name, arrow_type(schema.named(name).definition.column_type)) for name in columns]
    )


def partials_schema(schema: StoredSchema, partials: Partials) -> pa.Schema:
    """Return the schema of partial aggregates: group columns, and a column for each partial."""
    fields = list(rows_schema(schema, partials.groups))
    for each in partials.columns:
        source = None if each.column is None else schema.named(each.column).definition.column_type
        fields.append(pa.field(each.name, arrow_type(each.result_type(source))))
    return pa.schema(fields)
