"""information_schema as Arrow tables made of the catalogue: what ordinary clients look around with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from rtolap.model.types import ColumnType
from rtolap.query.catalogue import INFORMATION_SCHEMA, Catalogue

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


def sql_type(kind: ColumnType) -> str:
    """The type as SHOW and DESCRIBE write it, readable by MySQL's clients."""
    return f"decimal({kind.precision},{kind.scale})" if kind.kind == "decimal" else _SQL_TYPES[kind.kind]


def _schemata(catalogue: Catalogue) -> pa.Table:
    return _table(
        ("CATALOG_NAME", "SCHEMA_NAME", "DEFAULT_CHARACTER_SET_NAME", "DEFAULT_COLLATION_NAME"),
        [("def", name, "utf8mb4", "utf8mb4_bin") for name in (INFORMATION_SCHEMA, *catalogue.databases())],
    )


def _tables(catalogue: Catalogue) -> pa.Table:
    rows: list[tuple[object, ...]] = []
    for database in catalogue.databases():
        for name, relation in catalogue.in_database(database).items():
            comment = catalogue.comment(relation)
            rows.append(("def", database, name, "BASE TABLE", "rtolap", "utf8mb4_bin", comment))
    return _table(
        (
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "TABLE_TYPE",
            "ENGINE",
            "TABLE_COLLATION",
            "TABLE_COMMENT",
        ),
        rows,
    )


def _columns(catalogue: Catalogue) -> pa.Table:
    rows: list[tuple[object, ...]] = []
    for database, table, relation in _relations(catalogue):
        for position, (name, kind) in enumerate(catalogue.listed_columns(relation).items(), start=1):
            full = sql_type(kind)
            rows.append(
                (
                    *("def", database, table, name, position, None, "YES", full.partition("(")[0]),
                    65535 if kind.kind == "string" else None,
                    262140 if kind.kind == "string" else None,
                    kind.precision or {"int": 10, "bigint": 19, "double": 22}.get(kind.kind),
                    kind.scale if kind.is_numeric and kind.kind != "double" else None,
                    6 if kind.kind == "timestamp" else None,
                    "utf8mb4" if kind.kind == "string" else None,
                    "utf8mb4_bin" if kind.kind == "string" else None,
                    *(full, "", "", "select", _role(catalogue, relation, name)),
                )
            )
    return _table(
        (
            *("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "ORDINAL_POSITION"),
            *("COLUMN_DEFAULT", "IS_NULLABLE", "DATA_TYPE", "CHARACTER_MAXIMUM_LENGTH"),
            *("CHARACTER_OCTET_LENGTH",),
            *("NUMERIC_PRECISION", "NUMERIC_SCALE", "DATETIME_PRECISION", "CHARACTER_SET_NAME"),
            *("COLLATION_NAME", "COLUMN_TYPE", "COLUMN_KEY", "EXTRA", "PRIVILEGES", "COLUMN_COMMENT"),
        ),
        rows,
        whole=("ORDINAL_POSITION", "CHARACTER_MAXIMUM_LENGTH", "CHARACTER_OCTET_LENGTH", "NUMERIC_PRECISION",
               "NUMERIC_SCALE", "DATETIME_PRECISION"),
    )  # fmt: skip


def _relations(catalogue: Catalogue) -> list[tuple[str, str, str]]:
    """(database, name in it, relation)"""
    return [
        (database, name, relation)
        for database in catalogue.databases()
        for name, relation in catalogue.in_database(database).items()
    ]


def _role(catalogue: Catalogue, relation: str, column: str) -> str:
    """How a cube's column may be used; shown as its comment."""
    if relation not in catalogue.cubes:
        return ""
    schema = catalogue.cubes[relation]
    if column in schema.cube.all_dimensions:
        return "dimension"
    functions = sorted(m.function for m in schema.cube.measures if m.column == column)
    return f"measure: {', '.join(functions)}"


def _nothing(*columns: str) -> Callable[[Catalogue], pa.Table]:
    return lambda catalogue: _table(columns, [])


_TABLES: dict[str, Callable[[Catalogue], pa.Table]] = {
    "schemata": _schemata,
    "tables": _tables,
    "columns": _columns,
    "views": _nothing("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "VIEW_DEFINITION"),
    "statistics": _nothing(
        "TABLE_SCHEMA", "TABLE_NAME", "NON_UNIQUE", "INDEX_NAME", "SEQ_IN_INDEX", "COLUMN_NAME"
    ),
    "key_column_usage": _nothing(
        "CONSTRAINT_SCHEMA", "CONSTRAINT_NAME", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME",
        "ORDINAL_POSITION",
        "REFERENCED_TABLE_SCHEMA", "REFERENCED_TABLE_NAME", "REFERENCED_COLUMN_NAME",
    ),
    "table_constraints": _nothing(
        "CONSTRAINT_SCHEMA", "CONSTRAINT_NAME", "TABLE_SCHEMA", "TABLE_NAME", "CONSTRAINT_TYPE"
    ),
    "referential_constraints": _nothing(
        "CONSTRAINT_SCHEMA", "CONSTRAINT_NAME", "TABLE_NAME", "REFERENCED_TABLE_NAME"
    ),
    "routines": _nothing("ROUTINE_SCHEMA", "ROUTINE_NAME", "ROUTINE_TYPE"),
    "triggers": _nothing("TRIGGER_SCHEMA", "TRIGGER_NAME", "EVENT_OBJECT_TABLE"),
    "parameters": _nothing("SPECIFIC_SCHEMA", "SPECIFIC_NAME", "PARAMETER_NAME"),
}  # fmt: skip
INFORMATION_TABLES = frozenset(_TABLES)


def information_table(name: str, catalogue: Catalogue) -> pa.Table:
    """`name` is one of INFORMATION_TABLES."""
    return _TABLES[name](catalogue)


def _table(names: Sequence[str], rows: list[tuple[object, ...]], *, whole: Sequence[str] = ()) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [
        pa.array(list(values), pa.int64() if name in whole else pa.string())
        for name, values in zip(names, columns, strict=True)
    ]
    return pa.table(arrays, names=list(names))
