"""Changes of a stored table's columns while it is loaded: each gives the next version of the schema.

Pure. Raises DefinitionError for what the definition itself could not say either, NotFound for no such column.
"""

from __future__ import annotations

import msgspec

from rtolap.base.errors import ColumnExists, DefinitionError
from rtolap.model.problems import raise_all
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.model.stored.table import StoredColumn
from rtolap.model.validation.names import name_problems
from rtolap.model.validation.stored_table import value_column_problems


def add_column(schema: StoredSchema, column: StoredColumn) -> StoredSchema:
    """Add a value column at the end. Rows that were stored before have its default there."""
    _check_new_name(schema, column.name)
    raise_all(f"column {column.name}", value_column_problems(column, schema.model, ()))
    if not column.nullable and column.default is None:
        raise DefinitionError(
            f"column {column.name} is added without a value for the rows there are",
            expected="a default, or nullable",
        )
    added = SchemaColumn(schema.next_id, column)
    if column.aggregate == "SUM" and added.default not in (None, 0):
        raise DefinitionError(
            f"column {column.name} is added with a default that sums would count once a stored row",
            expected="0 or none",
            found=repr(column.default),
        )
    return msgspec.structs.replace(
        schema,
        version=schema.version + 1,
        columns=(*schema.columns, added),
        next_id=schema.next_id + 1,
    )


def drop_column(schema: StoredSchema, name: str) -> StoredSchema:
    """Return the schema without a column. Raises DefinitionError for a key, sequence, partition or bucket
    column, ColumnNotFound for an unknown one."""
    column = schema.named(name)
    if column.id in schema.keys or column.id == schema.sequence or column.id in schema.pinned:
        raise DefinitionError(
            f"column {name} cannot be dropped",
            expected="no key, sequence, partition or bucket column",
        )
    rest = tuple(other for other in schema.columns if other.id != column.id)
    return msgspec.structs.replace(schema, version=schema.version + 1, columns=rest)


def rename_column(schema: StoredSchema, name: str, new_name: str) -> StoredSchema:
    column = schema.named(name)
    _check_new_name(schema, new_name)
    renamed = SchemaColumn(column.id, msgspec.structs.replace(column.definition, name=new_name))
    columns = tuple(renamed if other.id == column.id else other for other in schema.columns)
    return msgspec.structs.replace(schema, version=schema.version + 1, columns=columns)


def _check_new_name(schema: StoredSchema, name: str) -> None:
    raise_all(f"column {name}", name_problems(name, ()))
    if name in schema.names:
        raise ColumnExists(f"column {name} exists already", expected="a new name")
