"""Several changes of a table's columns as one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rtolap.model.stored.schema import StoredSchema
from rtolap.model.stored.schema_changes import add_column, drop_column, rename_column
from rtolap.protocols.stored_tables.messages import AddColumn, ColumnChange, DropColumn


def changed(schema: StoredSchema, changes: Sequence[ColumnChange]) -> StoredSchema:
    """The schema after all of them, one version later. Raises as `model.schema_changes`."""
    after = schema
    for change in changes:
        if isinstance(change, AddColumn):
            after = add_column(after, change.column)
        elif isinstance(change, DropColumn):
            after = drop_column(after, change.name)
        else:
            after = rename_column(after, change.name, change.new_name)
    return schema if after is schema else msgspec.structs.replace(after, version=schema.version + 1)
