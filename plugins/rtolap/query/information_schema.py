"""information_schema as Arrow tables made of the catalogue: what ordinary clients look around with.

Each table has the columns that MySQL 8 gives it. Columns without a meaning here are NULL; tables of things
that do not exist here (routines, triggers, foreign keys, …) are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
from sqlglot.dialects.mysql import MySQL

from rtolap.query.catalogue import INFORMATION_SCHEMA, QueryCatalogue
from rtolap.query.described import PRIMARY, DescribedColumn, described, key_columns
from rtolap.query.query_log.entries import QUERY_LOG, SCHEMA

INFORMATION_PREFIX = "__information_"  # of their names as the rules and the engine call them
_Row = Mapping[str, object]  # columns that it leaves out are NULL

_CHARACTER_SET, _COLLATION = "utf8mb4", "utf8mb4_bin"
_TEXT_LENGTH, _TEXT_BYTES = 65_535, 262_140
_PRECISION = {"boolean": 3, "int": 10, "bigint": 19, "double": 22}
_WITH_SCALE = ("boolean", "int", "bigint", "decimal")


def _schemata(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for name in (INFORMATION_SCHEMA, *catalogue.databases()):
        yield {
            "CATALOG_NAME": "def",
            "SCHEMA_NAME": name,
            "DEFAULT_CHARACTER_SET_NAME": _CHARACTER_SET,
            "DEFAULT_COLLATION_NAME": _COLLATION,
            "DEFAULT_ENCRYPTION": "NO",
        }


def _tables(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for relation, place in _relations(catalogue):
        yield {
            **place,
            "TABLE_TYPE": "BASE TABLE",
            "ENGINE": "rtolap",
            "TABLE_COLLATION": _COLLATION,
            "CREATE_OPTIONS": "",
            "TABLE_COMMENT": catalogue.comment(relation),
        }


def _columns(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for relation, place in _relations(catalogue):
        for position, column in enumerate(described(catalogue, relation), start=1):
            yield {**place, "ORDINAL_POSITION": position, **_column(column)}


def _column(column: DescribedColumn) -> _Row:
    kind = column.column_type
    is_text = kind.kind == "string"
    return {
        "COLUMN_NAME": column.name,
        "COLUMN_DEFAULT": column.default,
        "IS_NULLABLE": column.nullable,
        "DATA_TYPE": column.type_text.partition("(")[0],
        "CHARACTER_MAXIMUM_LENGTH": _TEXT_LENGTH if is_text else None,
        "CHARACTER_OCTET_LENGTH": _TEXT_BYTES if is_text else None,
        "NUMERIC_PRECISION": kind.precision or _PRECISION.get(kind.kind),
        "NUMERIC_SCALE": kind.scale if kind.kind in _WITH_SCALE else None,
        "DATETIME_PRECISION": 6 if kind.kind == "timestamp" else None,
        "CHARACTER_SET_NAME": _CHARACTER_SET if is_text else None,
        "COLLATION_NAME": _COLLATION if is_text else None,
        "COLUMN_TYPE": column.type_text,
        "COLUMN_KEY": column.key,
        "EXTRA": column.extra,
        "PRIVILEGES": "select",
        "COLUMN_COMMENT": column.comment,
        "GENERATION_EXPRESSION": "",
    }


def index_rows(catalogue: QueryCatalogue, relation: str) -> list[dict[str, object]]:
    """Return the primary key's columns, as STATISTICS and SHOW KEYS list them."""
    nullable = {column.name: column.is_nullable for column in described(catalogue, relation)}
    return [
        {
            "NON_UNIQUE": 0,
            "INDEX_NAME": PRIMARY,
            "SEQ_IN_INDEX": position,
            "COLUMN_NAME": name,
            "COLLATION": "A",
            "NULLABLE": "YES" if nullable[name] else "",
            "INDEX_TYPE": "SORTED",
            "COMMENT": "",
            "INDEX_COMMENT": "",
            "IS_VISIBLE": "YES",
        }
        for position, name in enumerate(key_columns(catalogue, relation), start=1)
    ]


def _statistics(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for relation, place in _relations(catalogue):
        for row in index_rows(catalogue, relation):
            yield {**place, "INDEX_SCHEMA": place["TABLE_SCHEMA"], **row}


def _key_columns(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for relation, place in _relations(catalogue):
        for position, name in enumerate(key_columns(catalogue, relation), start=1):
            yield {**place, **_primary(place), "COLUMN_NAME": name, "ORDINAL_POSITION": position}


def _table_constraints(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for relation, place in _relations(catalogue):
        if key_columns(catalogue, relation):
            yield {**place, **_primary(place), "CONSTRAINT_TYPE": "PRIMARY KEY", "ENFORCED": "YES"}


def _primary(place: _Row) -> _Row:
    return {
        "CONSTRAINT_CATALOG": "def",
        "CONSTRAINT_SCHEMA": place["TABLE_SCHEMA"],
        "CONSTRAINT_NAME": PRIMARY,
    }


def _character_sets(catalogue: QueryCatalogue) -> Iterable[_Row]:
    yield {
        "CHARACTER_SET_NAME": _CHARACTER_SET,
        "DEFAULT_COLLATE_NAME": _COLLATION,
        "DESCRIPTION": "UTF-8 Unicode",
        "MAXLEN": 4,
    }


def _collations(catalogue: QueryCatalogue) -> Iterable[_Row]:
    yield {
        "COLLATION_NAME": _COLLATION,
        "CHARACTER_SET_NAME": _CHARACTER_SET,
        "ID": 46,
        "IS_DEFAULT": "Yes",
        "IS_COMPILED": "Yes",
        "SORTLEN": 1,
        "PAD_ATTRIBUTE": "NO PAD",
    }


def _engines(catalogue: QueryCatalogue) -> Iterable[_Row]:
    yield {
        "ENGINE": "rtolap",
        "SUPPORT": "DEFAULT",
        "COMMENT": "cubes over Kafka, stored tables",
        "TRANSACTIONS": "NO",
        "XA": "NO",
        "SAVEPOINTS": "NO",
    }


def _keywords(catalogue: QueryCatalogue) -> Iterable[_Row]:
    for word in sorted(MySQL.Generator.RESERVED_KEYWORDS):
        yield {"WORD": word.upper(), "RESERVED": 1}


def _relations(catalogue: QueryCatalogue) -> list[tuple[str, _Row]]:
    """Return each relation with its place: catalogue, database and name in it."""
    return [
        (relation, {"TABLE_CATALOG": "def", "TABLE_SCHEMA": database, "TABLE_NAME": name})
        for database in catalogue.databases()
        for name, relation in catalogue.in_database(database).items()
    ]


def _nothing(catalogue: QueryCatalogue) -> Iterable[_Row]:
    return ()


# Columns in MySQL's order; whole numbers are marked with #.
_TABLES: dict[str, tuple[Callable[[QueryCatalogue], Iterable[_Row]], str]] = {
    "schemata": (
        _schemata,
        "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH "
        "DEFAULT_ENCRYPTION",
    ),
    "tables": (
        _tables,
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION# ROW_FORMAT TABLE_ROWS# "
        "AVG_ROW_LENGTH# DATA_LENGTH# MAX_DATA_LENGTH# INDEX_LENGTH# DATA_FREE# AUTO_INCREMENT# CREATE_TIME "
        "UPDATE_TIME CHECK_TIME TABLE_COLLATION CHECKSUM# CREATE_OPTIONS TABLE_COMMENT",
    ),
    "columns": (
        _columns,
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION# COLUMN_DEFAULT IS_NULLABLE "
        "DATA_TYPE CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# "
        "DATETIME_PRECISION# CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES "
        "COLUMN_COMMENT GENERATION_EXPRESSION SRS_ID#",
    ),
    "statistics": (
        _statistics,
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE# INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX# COLUMN_NAME "
        "COLLATION CARDINALITY# SUB_PART# PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT IS_VISIBLE "
        "EXPRESSION",
    ),
    "key_column_usage": (
        _key_columns,
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME "
        "COLUMN_NAME ORDINAL_POSITION# POSITION_IN_UNIQUE_CONSTRAINT# REFERENCED_TABLE_SCHEMA "
        "REFERENCED_TABLE_NAME REFERENCED_COLUMN_NAME",
    ),
    "table_constraints": (
        _table_constraints,
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE "
        "ENFORCED",
    ),
    "referential_constraints": (
        _nothing,
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME UNIQUE_CONSTRAINT_CATALOG "
        "UNIQUE_CONSTRAINT_SCHEMA UNIQUE_CONSTRAINT_NAME MATCH_OPTION UPDATE_RULE DELETE_RULE TABLE_NAME "
        "REFERENCED_TABLE_NAME",
    ),
    "check_constraints": (
        _nothing,
        "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME CHECK_CLAUSE",
    ),
    "views": (
        _nothing,
        "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER "
        "SECURITY_TYPE CHARACTER_SET_CLIENT COLLATION_CONNECTION",
    ),
    "routines": (
        _nothing,
        "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE "
        "CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# "
        "DATETIME_PRECISION# CHARACTER_SET_NAME COLLATION_NAME DTD_IDENTIFIER ROUTINE_BODY "
        "ROUTINE_DEFINITION EXTERNAL_NAME EXTERNAL_LANGUAGE PARAMETER_STYLE IS_DETERMINISTIC "
        "SQL_DATA_ACCESS SQL_PATH SECURITY_TYPE CREATED LAST_ALTERED SQL_MODE ROUTINE_COMMENT DEFINER "
        "CHARACTER_SET_CLIENT COLLATION_CONNECTION DATABASE_COLLATION",
    ),
    "parameters": (
        _nothing,
        "SPECIFIC_CATALOG SPECIFIC_SCHEMA SPECIFIC_NAME ORDINAL_POSITION# PARAMETER_MODE PARAMETER_NAME "
        "DATA_TYPE CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# "
        "DATETIME_PRECISION# CHARACTER_SET_NAME COLLATION_NAME DTD_IDENTIFIER ROUTINE_TYPE",
    ),
    "triggers": (
        _nothing,
        "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_CATALOG "
        "EVENT_OBJECT_SCHEMA EVENT_OBJECT_TABLE ACTION_ORDER# ACTION_CONDITION ACTION_STATEMENT "
        "ACTION_ORIENTATION ACTION_TIMING ACTION_REFERENCE_OLD_TABLE ACTION_REFERENCE_NEW_TABLE "
        "ACTION_REFERENCE_OLD_ROW ACTION_REFERENCE_NEW_ROW CREATED SQL_MODE DEFINER CHARACTER_SET_CLIENT "
        "COLLATION_CONNECTION DATABASE_COLLATION",
    ),
    "events": (
        _nothing,
        "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER TIME_ZONE EVENT_BODY EVENT_DEFINITION EVENT_TYPE "
        "EXECUTE_AT INTERVAL_VALUE INTERVAL_FIELD SQL_MODE STARTS ENDS STATUS ON_COMPLETION CREATED "
        "LAST_ALTERED LAST_EXECUTED EVENT_COMMENT ORIGINATOR# CHARACTER_SET_CLIENT COLLATION_CONNECTION "
        "DATABASE_COLLATION",
    ),
    "user_privileges": (_nothing, "GRANTEE TABLE_CATALOG PRIVILEGE_TYPE IS_GRANTABLE"),
    "schema_privileges": (_nothing, "GRANTEE TABLE_CATALOG TABLE_SCHEMA PRIVILEGE_TYPE IS_GRANTABLE"),
    "table_privileges": (
        _nothing,
        "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PRIVILEGE_TYPE IS_GRANTABLE",
    ),
    "column_privileges": (
        _nothing,
        "GRANTEE TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME PRIVILEGE_TYPE IS_GRANTABLE",
    ),
    "character_sets": (_character_sets, "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN#"),
    "collations": (
        _collations,
        "COLLATION_NAME CHARACTER_SET_NAME ID# IS_DEFAULT IS_COMPILED SORTLEN# PAD_ATTRIBUTE",
    ),
    "engines": (_engines, "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS"),
    "keywords": (_keywords, "WORD RESERVED#"),
}
INFORMATION_TABLES = frozenset((*_TABLES, QUERY_LOG))


def information_columns(name: str) -> tuple[str, ...]:
    """Return the columns of a table, whose name is one of INFORMATION_TABLES."""
    if name == QUERY_LOG:
        return tuple(SCHEMA.names)
    return tuple(column.rstrip("#") for column in _TABLES[name][1].split())


def information_table(name: str, catalogue: QueryCatalogue) -> pa.Table:
    """Return a table, whose name is one of INFORMATION_TABLES; not the query log, which is none of the
    catalogue's."""
    build, columns = _TABLES[name]
    rows = list(build(catalogue))
    arrays = [
        pa.array(
            [row.get(column.rstrip("#")) for row in rows],
            pa.int64() if column.endswith("#") else pa.string(),
        )
        for column in columns.split()
    ]
    return pa.table(arrays, names=list(information_columns(name)))
