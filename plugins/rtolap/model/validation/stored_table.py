"""The checks of a stored table's definition. Pure; every problem with the way to it."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.errors import DefinitionError
from rtolap.column_types import parse_type
from rtolap.model.durations import format_duration
from rtolap.model.problems import Key, Problem, bound_problems, did_you_mean, raise_all, unknown_name
from rtolap.model.stored.schema import default_value
from rtolap.model.stored.table import SKETCH_TYPES, StoredColumn, StoredTable, TableModel
from rtolap.model.validation.definition import COLUMNS_MAX, duplicates
from rtolap.model.validation.names import name_problems

BUCKETS_MAX = 1024
AHEAD_MAX = 1000
_SEQUENCE_KINDS = ("int", "bigint", "decimal", "date", "timestamp")
_SKETCH_FUNCTION = {"hll": "HLL_UNION", "bitmap": "BITMAP_UNION"}
_TYPE_NAMES = ("string", "boolean", "int", "bigint", "double", "date", "timestamp", *SKETCH_TYPES)


def validate_stored_table(table: StoredTable) -> None:
    raise_all(f"table {table.qualified_name}", stored_table_problems(table))


def stored_table_problems(table: StoredTable) -> tuple[Problem, ...]:
    found = [*name_problems(table.database, ("database",)), *name_problems(table.name, ("name",))]
    columns = _columns_problems(table)
    found += columns
    if not columns:  # with a broken column everything that names it would complain again
        found += _key_problems(table)
        found += _aggregate_problems(table)
        found += _unique_problems(table)
        found += _partition_problems(table)
        found += _bucket_problems(table)
    return tuple(found)


def value_column_problems(column: StoredColumn, model: TableModel, key: Key) -> list[Problem]:
    """Return problems with type, default and function of a column that is no key."""
    return _type_problems(column, key) or _function_problems(column, model, key)


def _columns_problems(table: StoredTable) -> list[Problem]:
    found: list[Problem] = []
    names = [column.name for column in table.columns]
    if not 1 <= len(names) <= COLUMNS_MAX:
        expected = f"1 to {COLUMNS_MAX} columns"
        found.append(
            Problem(("columns",), "wrong number of columns", expected=expected, found=str(len(names)))
        )
    twice = set(duplicates(names))
    for position, column in enumerate(table.columns):
        found += name_problems(column.name, ("columns", position, "name"))
        if column.name in twice and column.name in names[:position]:
            found.append(
                Problem(("columns", position, "name"), "column is declared twice", found=repr(column.name))
            )
        found += _type_problems(column, ("columns", position))
    return found


def _type_problems(column: StoredColumn, key: Key) -> list[Problem]:
    kind = column.type.strip().lower()
    if kind not in SKETCH_TYPES:
        try:
            parse_type(column.type)
        except DefinitionError as error:
            hint = did_you_mean(kind, _TYPE_NAMES)
            expected = f"{error.expected}, hll or bitmap"
            return [Problem((*key, "type"), error.message, expected, repr(column.type), hint)]
    if column.default is None:
        return []
    try:
        default_value(column.default, column.column_type)
    except DefinitionError as error:
        expected = "none: an absent sketch is an empty one" if kind in SKETCH_TYPES else str(error.expected)
        return [Problem((*key, "default"), error.message, expected, repr(column.default))]
    return []


def _key_problems(table: StoredTable) -> list[Problem]:
    found = _names_problems(table, table.keys, ("keys",))
    if table.model != "duplicate" and not table.keys:
        found.append(
            Problem(("keys",), "no key columns", expected=f"at least one in {_a(table.model)} table")
        )
    return found


def _names_problems(table: StoredTable, names: tuple[str, ...], key: Key) -> list[Problem]:
    """Return the problems of columns by which rows are compared or hashed. Each exists, stands once, and
    compares exactly."""
    found: list[Problem] = []
    declared = {column.name: column.type.strip().lower() for column in table.columns}
    for position, name in enumerate(names):
        at = (*key, position)
        if name not in declared:
            found.append(_no_column(table, name, at))
        elif declared[name] in ("double", *SKETCH_TYPES):
            expected = "a type whose values are equal or not"
            found.append(Problem(at, "no key can be made of it", expected, f"{name} {declared[name]}"))
        if name in names[:position]:
            found.append(Problem(at, "named twice", found=repr(name)))
    return found


def _aggregate_problems(table: StoredTable) -> Iterator[Problem]:
    for position, column in enumerate(table.columns):
        key: Key = ("columns", position)
        if column.name not in table.keys:
            yield from _function_problems(column, table.model, key)
        elif column.aggregate is not None:
            at: Key = (*key, "aggregate")
            expected = "only on value columns"
            yield Problem(at, "a function that is never applied", expected, column.aggregate)


def _function_problems(column: StoredColumn, model: TableModel, key: Key) -> list[Problem]:
    key = (*key, "aggregate")
    kind, function = column.type.strip().lower(), column.aggregate
    if model != "aggregate" and function is not None:
        return [Problem(key, "a function that is never applied", "only in an aggregate table", function)]
    if model == "aggregate" and function is None:
        return [Problem(key, "a value column without a function", "SUM, MIN, MAX, REPLACE, …", "none")]
    of_sketch = _SKETCH_FUNCTION.get(kind)
    if of_sketch != function and (of_sketch or function in _SKETCH_FUNCTION.values()):
        expected = "hll with HLL_UNION, bitmap with BITMAP_UNION, in an aggregate table"
        return [Problem(key, "type and function do not fit", expected, f"{kind} {function or 'without one'}")]
    if function == "SUM" and not column.load_type.is_numeric:
        return [Problem(key, "type and function do not fit", "a numeric type", f"SUM of {kind}")]
    return []


def _unique_problems(table: StoredTable) -> Iterator[Problem]:
    if table.delete_sign is not None and table.model != "unique":
        yield Problem(("delete_sign",), "rows are deleted by key", "model: unique", table.model)
    name, key = table.sequence_column, ("sequence_column",)
    if name is None:
        return
    column = next((column for column in table.columns if column.name == name), None)
    if table.model != "unique":
        yield Problem(key, "versions of a row are ordered by it", "model: unique", table.model)
    elif column is None:
        yield _no_column(table, name, key)
    elif name in table.keys or column.load_type.kind not in _SEQUENCE_KINDS:
        expected = f"a value column of type {', '.join(_SEQUENCE_KINDS)}"
        yield Problem(key, "cannot order a row's versions", expected, f"{name} {column.type}")


def _partition_problems(table: StoredTable) -> Iterator[Problem]:
    policy = table.partitions
    if policy is None:
        return
    key: Key = ("partitions", "column")
    column = next((column for column in table.columns if column.name == policy.column), None)
    if column is None:
        yield _no_column(table, policy.column, key)
    else:
        kind = column.load_type.kind
        if kind not in ("date", "timestamp"):
            yield Problem(key, "no time to partition by", "a date or a timestamp", column.type)
        elif kind == "date" and policy.unit == "hour":
            yield Problem(("partitions", "unit"), "a date has no hours", "day or longer", "hour")
        if column.nullable:
            yield Problem(key, "a null has no partition", "nullable: false", f"{column.name} nullable")
        if table.model != "duplicate" and column.name not in table.keys:
            expected = "a key column, so that equal keys meet in one partition"
            yield Problem(key, "not a key column", expected, repr(column.name))
    yield from bound_problems(("partitions", "ahead"), policy.ahead, 0, AHEAD_MAX)
    if policy.retention_ms is not None and policy.retention_ms <= 0:
        spelled = format_duration(policy.retention_ms) if policy.retention_ms == 0 else "less than nothing"
        yield Problem(("partitions", "retention_ms"), "out of bounds", "more than 0s", spelled)


def _bucket_problems(table: StoredTable) -> list[Problem]:
    buckets = table.buckets
    found = _names_problems(table, buckets.columns, ("buckets", "columns"))
    found += bound_problems(("buckets", "count"), buckets.count, 1, BUCKETS_MAX)
    if buckets.count > 1 and not table.bucket_columns:
        found.append(
            Problem(("buckets", "columns"), "nothing to hash", "columns, or a table with keys", "none")
        )
    if table.model != "duplicate":
        found += [
            Problem(
                ("buckets", "columns", position),
                "not a key column",
                expected="key columns, so that equal keys meet in one bucket",
                found=repr(name),
            )
            for position, name in enumerate(buckets.columns)
            if name not in table.keys
        ]
    return found


def _no_column(table: StoredTable, name: str, key: Key) -> Problem:
    known = [column.name for column in table.columns]
    return unknown_name(key, "no such column", name, known, f"a column of table {table.name}")


def _a(model: str) -> str:
    return f"an {model}" if model[0] in "aeio" else f"a {model}"
