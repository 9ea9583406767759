"""A table's columns, by name, beside those of its files, by id (`c7`).

Batches come in by name under the schema they were begun with. Files keep their ids; what is read gets the
names and defaults of the schema that it is read under.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import DefinitionError
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.pushed_schema import partials_schema
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.sketches import checked_bitmaps, checked_hlls
from rtolap.model.stored.pushed import Partials
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.engine.rows.texts import SENT_TEXTS, has_short_texts, plain_texts

DELETE_SIGN = "__delete_sign"  # boolean, in batches and files of unique tables: TRUE deletes the row's key
_CHECKS = {"HLL_UNION": checked_hlls, "BITMAP_UNION": checked_bitmaps}


def file_column(column_id: int) -> str:
    return f"c{column_id}"


def stored_type(column: SchemaColumn) -> pa.DataType:
    return arrow_type(column.definition.column_type)


def read_schema(schema: StoredSchema, names: Iterable[str] | None = None) -> pa.Schema:
    """Return the schema of the rows that are read, by name."""
    wanted = schema.columns if names is None else [schema.named(name) for name in names]
    return pa.schema([pa.field(column.name, stored_type(column)) for column in wanted])


def answer_schema(
    schema: StoredSchema, names: Iterable[str] | None = None, partials: Partials | None = None
) -> pa.Schema:
    """Return the schema of a scan's answer: that of the rows, or of partial aggregates of them."""
    return read_schema(schema, names) if partials is None else partials_schema(schema, partials)


def accept(batch: pa.RecordBatch | pa.Table, schema: StoredSchema, *, partial: bool = False) -> pa.Table:
    """Return a loaded batch as file columns. Missing columns have their default, or are left out of `partial`
    rows. Texts that come in dictionaries and are nothing but put in order keep them.

    DefinitionError: a column that is not the table's or of another type, a null where none may be, bytes that
    are no sketch, deletes in a table without, a missing column that has to have a value.
    """
    unknown = sorted(set(batch.schema.names) - set(schema.names) - {DELETE_SIGN})
    if unknown:
        raise DefinitionError(
            "a batch has columns that the table has not", expected=", ".join(schema.names), found=unknown
        )
    given = schema.columns
    if partial:
        check_partial(schema, batch.schema.names, only_deletes=_only_deletes(batch))
        given = tuple(column for column in schema.columns if column.name in batch.schema.names)
    columns = {
        file_column(column.id): _accept_column(
            batch, column, batch.num_rows, coded=not partial and _is_only_moved(schema, column)
        )
        for column in given
    }
    if DELETE_SIGN in batch.schema.names:
        columns[DELETE_SIGN] = _accept_deletes(batch, schema)
    return pa.table(columns)


def _is_only_moved(schema: StoredSchema, column: SchemaColumn) -> bool:
    """Return whether rows that become one take a value of the column as it is, and none compares them."""
    if column.id in schema.keys or column.id == schema.sequence:
        return False
    return column.definition.aggregate in (None, "REPLACE", "REPLACE_IF_NOT_NULL")


def check_partial(schema: StoredSchema, given: Iterable[str], *, only_deletes: bool) -> None:
    """Raise DefinitionError where rows with only these columns cannot become whole.

    Whether a key is there is known when the rows are published, too late to refuse one: so every row has to
    be able to become a new one.
    """
    if schema.model != "unique":
        raise DefinitionError("partial rows", expected="a unique table", found=f"model {schema.model}")
    known = set(given)
    located = {*schema.keys, *schema.pinned}
    absent = [column.name for column in schema.columns if column.id in located and column.name not in known]
    if absent:
        raise DefinitionError("partial rows lack key columns", expected=", ".join(absent))
    needed = needed_for_new(schema, known)
    if needed and not only_deletes:
        raise DefinitionError(
            f"partial rows lack {', '.join(needed)}: a key that is new would have no value there",
            expected="every column that has no default and may not be null",
        )


def needed_for_new(schema: StoredSchema, given: Iterable[str]) -> tuple[str, ...]:
    """Return columns that a new row has to have and that are not given."""
    known = set(given)
    return tuple(
        column.name
        for column in schema.columns
        if column.name not in known and column.default is None and not column.definition.nullable
    )


def _only_deletes(batch: pa.RecordBatch | pa.Table) -> bool:
    return DELETE_SIGN in batch.schema.names and bool(pc.all(batch.column(DELETE_SIGN), min_count=0).as_py())


def _accept_column(
    batch: pa.RecordBatch | pa.Table, column: SchemaColumn, rows: int, *, coded: bool
) -> pa.Array:
    if column.name not in batch.schema.names:
        if column.default is None and not column.definition.nullable:
            raise DefinitionError(
                f"a batch lacks the column {column.name}", expected="its values: it has no default"
            )
        return constant(column, rows)
    values = single_chunk(batch.column(column.name))
    if not (coded and has_short_texts(values)):
        values = plain_texts(values)
    target, loaded = stored_type(column), arrow_type(column.definition.load_type)
    if values.type not in (target, loaded) and not (values.type == SENT_TEXTS and pa.types.is_string(target)):
        raise DefinitionError(
            f"column {column.name} has another type in a batch", expected=str(loaded), found=str(values.type)
        )
    if values.null_count and not column.definition.nullable:
        raise DefinitionError(
            f"column {column.name} has nulls in a batch", expected="none", found=values.null_count
        )
    check = _CHECKS.get(column.definition.aggregate or "")
    if check is not None:
        return check(values)
    return values if values.type in (target, SENT_TEXTS) else values.cast(target)


def _accept_deletes(batch: pa.RecordBatch | pa.Table, schema: StoredSchema) -> pa.Array:
    deletes = single_chunk(batch.column(DELETE_SIGN))
    if not pa.types.is_boolean(deletes.type) or deletes.null_count:
        raise DefinitionError(f"column {DELETE_SIGN}", expected="booleans, no nulls", found=str(deletes.type))
    if not schema.allows_deletes and pc.any(deletes).as_py():
        raise DefinitionError(
            "a batch deletes rows", expected="a unique table with delete_sign", found=f"model {schema.model}"
        )
    return deletes


def with_signs(table: pa.Table) -> pa.Table:
    """Return file columns with delete signs. Where there were none, none is set."""
    if DELETE_SIGN in table.column_names:
        return table
    return table.append_column(DELETE_SIGN, pa.repeat(pa.scalar(False), table.num_rows))


def constant(column: SchemaColumn, rows: int) -> pa.Array:
    """Return the column's default, `rows` times."""
    return pa.repeat(pa.scalar(column.default, stored_type(column)), rows)


def columns_in(file_columns: Sequence[str], wanted: Iterable[SchemaColumn]) -> list[str]:
    """Return the file columns that hold something of what is wanted."""
    present = set(file_columns)
    return [file_column(column.id) for column in wanted if file_column(column.id) in present]


def renamed(table: pa.Table, wanted: Sequence[SchemaColumn]) -> pa.Table:
    """Return file columns as named ones; what the file does not have is filled with its default."""
    arrays = []
    for column in wanted:
        name = file_column(column.id)
        present = name in table.column_names
        arrays.append(table.column(name) if present else constant(column, table.num_rows))
    fields = [pa.field(column.name, stored_type(column)) for column in wanted]
    return pa.table(arrays, schema=pa.schema(fields)) if fields else table.select([])
