"""The checks of tables, lookups and cubes. Pure: command line, coordinator and tests call the same functions.

`table_problems`, `lookup_problems` and `cube_problems` list everything that is wrong;
`validate_table`, `validate_lookup` and `validate_schema` raise it as one DefinitionError.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rtolap.base.errors import DefinitionError
from rtolap.column_types import DECIMAL_PRECISION_MAX, parse_type
from rtolap.model.cube import TIME_UNITS, Schema
from rtolap.model.loader import Loader
from rtolap.model.problems import Key, Problem, bound_problems, did_you_mean, raise_all, unknown_name
from rtolap.model.table import VALUE, Column, Lookup, Table
from rtolap.model.validation.computed import computed_problems
from rtolap.model.validation.conditions import condition_problems
from rtolap.model.validation.cube import cube_problems
from rtolap.model.validation.event_time import column_format_problems, time_problems
from rtolap.model.validation.lookup import source_problems
from rtolap.model.validation.names import name_problems
from rtolap.model.validation.record_format import format_problems
from rtolap.model.validation.record_paths import step_problems
from rtolap.model.validation.sketches import binary_column_problems
from rtolap.model.value_paths import index_of

COLUMNS_MAX = 1000
ROUNDED_PRECISION_MAX = DECIMAL_PRECISION_MAX - 1  # one more digit is read, and decides
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOPIC_LENGTH_MAX = 249 - len(".dead-letters")  # Kafka's bound, less our suffix
_RECORD_BYTES_MAX = 64 << 20  # a record larger than this does not belong on Kafka
_RESERVED_COLUMNS = frozenset(f"{unit}_start" for unit in TIME_UNITS)


def validate_table(table: Table) -> None:
    raise_all(f"table {table.name}", table_problems(table))


def validate_lookup(lookup: Lookup) -> None:
    raise_all(f"lookup {lookup.name}", lookup_problems(lookup))


def validate_schema(schema: Schema) -> None:
    """Check a cube and its table, alone and against each other.

    Raises DefinitionError naming every problem.
    """
    raise_all(f"table {schema.table.name}", table_problems(schema.table))
    problems = [*name_problems(schema.cube.name, ("name",)), *cube_problems(schema)]
    raise_all(f"cube {schema.cube.name}", problems)


def table_problems(table: Table) -> tuple[Problem, ...]:
    found = [
        *name_problems(table.name, ("name",)),
        *topic_problems(table.topic),
        *cluster_problems(table.kafka_cluster),
    ]
    column_faults = _column_problems(table.columns, binary=True)
    found += column_faults
    found += _path_problems(table.columns)
    found += _rounding_problems(table.columns)
    if not column_faults:
        found += time_problems(table)
        found += column_format_problems(table)
        found += binary_column_problems(table)
        computed_faults = computed_problems(table)
        found += computed_faults
        if table.where is not None and not computed_faults:
            found += condition_problems(table, table.where, ("where",))
    found += _host_column_problems(table)
    found += _heartbeat_column_problems(table)
    found += watermark_field_problems(table)
    found += format_problems(table)
    found += bound_problems(("record_bytes_max",), table.record_bytes_max, 1, _RECORD_BYTES_MAX)
    found += bound_problems(("future_max_ms",), table.future_max_ms, 0)
    return tuple(found)


def lookup_problems(lookup: Lookup) -> tuple[Problem, ...]:
    found = [*name_problems(lookup.name, ("name",)), *_column_problems(lookup.columns)]
    found += source_problems(lookup)
    found += [
        Problem(("columns", position, "path"), "a lookup has no nested values", found=repr(column.path))
        for position, column in enumerate(lookup.columns)
        if column.path is not None
    ]
    found += [
        Problem(("columns", position, "rounding"), "a lookup is read as it is", found=repr(column.rounding))
        for position, column in enumerate(lookup.columns)
        if column.rounding != "refuse"
    ]
    found += [
        Problem(("columns", position, "source"), "a lookup is read as it is", found=repr(column.source))
        for position, column in enumerate(lookup.columns)
        if column.source != VALUE
    ]
    found += [
        Problem(("columns", position, "expression"), "a lookup is read as it is", found=column.expression)
        for position, column in enumerate(lookup.columns)
        if column.expression is not None
    ]
    return tuple(found)


def duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def topic_problems(topic: str) -> list[Problem]:
    if _TOPIC.fullmatch(topic) and topic not in (".", "..") and len(topic) <= _TOPIC_LENGTH_MAX:
        return []
    expected = f"letters, digits, '.', '_' and '-', at most {_TOPIC_LENGTH_MAX}"
    return [Problem(("topic",), "not a topic name", expected=expected, found=repr(topic))]


def cluster_problems(name: str) -> list[Problem]:
    """Return the problems of a cluster's name. It is never an address: the host knows the address and the
    passwords."""
    if _CLUSTER.fullmatch(name):
        return []
    expected = "the name of a Kafka cluster: letters, digits, '.', '_' and '-', at most 64"
    return [Problem(("kafka_cluster",), "not a cluster's name", expected=expected, found=repr(name))]


def _column_problems(columns: Sequence[Column], *, binary: bool = False) -> list[Problem]:
    found: list[Problem] = []
    if not 1 <= len(columns) <= COLUMNS_MAX:
        expected = f"1 to {COLUMNS_MAX} columns"
        found.append(
            Problem(("columns",), "wrong number of columns", expected=expected, found=str(len(columns)))
        )
    seen: set[str] = set()
    for position, column in enumerate(columns):
        key: Key = ("columns", position, "name")
        found += name_problems(column.name, key)
        if column.name in _RESERVED_COLUMNS:
            hint = "it is the name of a derived time dimension; use another and give the old one as path"
            found.append(Problem(key, "a reserved name", found=repr(column.name), hint=hint))
        if column.name in seen:
            found.append(Problem(key, "column is declared twice", found=repr(column.name)))
        seen.add(column.name)
        try:
            parse_type(column.type, binary=binary)
        except DefinitionError as error:
            hint = did_you_mean(column.type, ("string", "boolean", "bigint", "double", "date", "timestamp"))
            found.append(
                Problem(
                    ("columns", position, "type"),
                    error.message,
                    expected=str(error.expected),
                    found=repr(column.type),
                    hint=hint,
                )
            )
    return found


def _any_item(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path with one step for all items of an array, which are read as one type."""
    return tuple(step if index_of(step) is None else "[]" for step in path)


def _rounding_problems(columns: Sequence[Column]) -> Iterator[Problem]:
    for position, column in enumerate(columns):
        try:
            kind = column.column_type
        except DefinitionError:
            continue  # reported already
        fits = kind.kind == "decimal" and kind.precision <= ROUNDED_PRECISION_MAX
        if column.rounding != "refuse" and not fits:
            expected = f"a decimal column of at most {ROUNDED_PRECISION_MAX} digits"
            key: Key = ("columns", position, "rounding")
            yield Problem(key, "cannot be rounded", expected=expected, found=str(kind))


def _host_column_problems(table: Table) -> list[Problem]:
    texts = [column.name for column in table.columns if column.type.strip().lower() == "string"]
    if table.host_column is None or table.host_column in texts:
        return []
    expected = "a string column of the table"
    return [unknown_name(("host_column",), "no host name", table.host_column, texts, expected)]


def _heartbeat_column_problems(table: Table) -> list[Problem]:
    name, key = table.heartbeat_column, ("heartbeat_column",)
    if name is None:
        return []
    flags = [column.name for column in table.columns if column.type.strip().lower() == "boolean"]
    if name not in flags:
        return [unknown_name(key, "no mark of heartbeats", name, flags, "a boolean column of the table")]
    if table.host_column is None:
        return [Problem(key, "a heartbeat is of a host", expected="host_column too", found="none")]
    return []


def watermark_field_problems(table: Table | Loader) -> list[Problem]:
    """Return the problems of the watermark field. It is read beside the columns, so no column may stand
    there."""
    field, key = table.watermark_field, ("watermark_field",)
    if not _NAME.fullmatch(field):
        return [Problem(key, "not a name", expected="lower-case letters, digits and _", found=repr(field))]
    taken = [column.name for column in table.columns if column.json_path[0] == field]
    if table.watermark_records != "field" or not taken:
        return []
    expected = "a field that no column reads"
    return [Problem(key, f"column {taken[0]} reads this field", expected=expected, found=repr(field))]


def _path_problems(columns: Sequence[Column]) -> Iterator[Problem]:
    """Return the problems of the columns' paths. A JSON value is either a scalar or an object: `a` and `a.b`
    cannot both be columns."""
    read = [column for column in columns if column.expression is None and column.source == VALUE]
    paths = {_any_item(column.json_path): column.name for column in read}
    for position, column in enumerate(columns):
        if column not in read:
            continue
        wrong = step_problems(position, column)
        if wrong:
            yield from wrong
            continue
        path = _any_item(column.json_path)
        for length in range(1, len(path)):
            if path[:length] in paths:
                yield Problem(
                    ("columns", position, "path"),
                    f"{'.'.join(path[:length])} is column {paths[path[:length]]} and an object at once",
                    expected="columns at the leaves of the JSON document",
                    found=repr(".".join(path)),
                )
        yield from _mixed_problems(position, path, paths)


def _mixed_problems(
    position: int, path: tuple[str, ...], paths: Mapping[tuple[str, ...], str]
) -> list[Problem]:
    """Return the problem of a path that takes for an array what another column takes for an object."""
    for length, step in enumerate(path):
        for other, name in paths.items():
            is_beside = other[:length] == path[:length] and len(other) > length
            if step == "[]" and is_beside and other[length] != "[]":
                return [
                    Problem(
                        ("columns", position, "path"),
                        f"{'.'.join(path[:length])} is an array, and an object for column {name}",
                        expected="one of both",
                        found=repr(".".join(path)),
                    )
                ]
    return []
