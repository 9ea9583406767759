"""Columns and keys of a relation, from which DESCRIBE, SHOW and information_schema are all made."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.column_types import ColumnType
from rtolap.query.catalogue import QueryCatalogue, sketches_of

PRIMARY = "PRIMARY"  # what MySQL calls the primary key
_SQL_TYPES = {
    "string": "varchar(65535)",
    "boolean": "tinyint(1)",
    "int": "int",
    "bigint": "bigint",
    "double": "double",
    "date": "date",
    "timestamp": "datetime(6)",
    "binary": "blob",
}


@dataclass(frozen=True)
class DescribedColumn:
    """A column as SHOW COLUMNS and information_schema describe it.

    Attributes:
        type_text: the type as MySQL's clients read it.
        extra: the aggregate function of a stored table's value column.
        comment: how a cube's column may be used.
    """

    name: str
    column_type: ColumnType
    type_text: str
    is_nullable: bool = True
    is_key: bool = False
    default: str | None = None
    extra: str = ""
    comment: str = ""

    @property
    def nullable(self) -> str:
        return "YES" if self.is_nullable else "NO"

    @property
    def key(self) -> str:
        return "PRI" if self.is_key else ""


def sql_type(kind: ColumnType) -> str:
    """Return the type as SHOW and DESCRIBE write it, readable by MySQL's clients."""
    return f"decimal({kind.precision},{kind.scale})" if kind.kind == "decimal" else _SQL_TYPES[kind.kind]


def described(catalogue: QueryCatalogue, relation: str) -> list[DescribedColumn]:
    """Return the columns that clients are shown, in order."""
    if relation not in catalogue.stored:
        return [
            DescribedColumn(name, kind, sql_type(kind), comment=_role(catalogue, relation, name))
            for name, kind in catalogue.listed_columns(relation).items()
        ]
    table = catalogue.stored[relation]
    sketches, keys = sketches_of(table), set(key_columns(catalogue, relation))
    columns = []
    for column in table.schema.columns:
        definition = column.definition
        columns.append(
            DescribedColumn(
                column.name,
                definition.column_type,
                sketches.get(column.name) or sql_type(definition.column_type),
                definition.nullable,
                column.name in keys,
                definition.default,
                definition.aggregate or "",
            )
        )
    return columns


def key_columns(catalogue: QueryCatalogue, relation: str) -> tuple[str, ...]:
    """Return the columns that tell rows apart, in order; empty where rows may be alike: cubes, lookups,
    duplicate tables."""
    table = catalogue.stored.get(relation)
    if table is None or table.definition.model == "duplicate":
        return ()
    return tuple(column.name for column in table.schema.columns if column.id in table.schema.keys)


def _role(catalogue: QueryCatalogue, relation: str, column: str) -> str:
    if relation not in catalogue.cubes:
        return ""
    schema = catalogue.cubes[relation]
    if column in schema.cube.all_dimensions:
        return "dimension"
    measures = [measure for measure in schema.cube.measures if measure.source == column]
    functions = sorted(measure.function for measure in measures)
    condition = next((f" where {each.where}" for each in measures if each.where is not None), "")
    return f"measure: {', '.join(functions)}{condition}"
