"""CREATE, DROP, ALTER and TRUNCATE TABLE as values, partitions among them; CREATE and DROP DATABASE. Pure.

Doris' grammar, as far as stored tables have a meaning for it; anything else is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rtolap.base.errors import QueryError, SqlSyntaxError
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.stored_tables.messages import (
    AddColumn,
    AddPartition,
    ColumnChange,
    DropColumn,
    RenameColumn,
    TableName,
)
from rtolap.query.stored.ddl_columns import column
from rtolap.query.stored.ddl_table import create_table, notes_on, properties
from rtolap.query.stored.words import Words

CHARACTERS_MAX = 256 << 10  # of a definition: it is read in the service itself
_DDL = re.compile(r"\s*(create|drop|alter|truncate|rename)\b", re.IGNORECASE)
_BLANK = re.compile(r"\s++|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"\w*+")
_DEFINED = {
    **dict.fromkeys(("create", "drop"), ("table", "database", "schema")),
    "alter": ("table",),
    "truncate": ("",),
}
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.0+)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CreateTableStatement:
    """CREATE TABLE.

    Attributes:
        notes: what the statement requests and does not get, as warnings.
    """

    definition: StoredTable
    if_not_exists: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropTableStatement:
    name: TableName
    if_exists: bool


@dataclass(frozen=True)
class AlterTableStatement:
    name: TableName
    changes: tuple[ColumnChange, ...]


@dataclass(frozen=True)
class AddTablePartitionStatement:
    """ALTER TABLE … ADD PARTITION.

    Attributes:
        notes: what the statement requests and does not get, as warnings.
    """

    name: TableName
    partition: AddPartition
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropTablePartitionStatement:
    name: TableName
    partition: str
    if_exists: bool


@dataclass(frozen=True)
class TruncateTableStatement:
    name: TableName


@dataclass(frozen=True)
class CreateDatabaseStatement:
    name: str
    if_not_exists: bool


@dataclass(frozen=True)
class DropDatabaseStatement:
    name: str
    if_exists: bool


DefinitionStatement = (
    CreateTableStatement
    | DropTableStatement
    | AlterTableStatement
    | AddTablePartitionStatement
    | DropTablePartitionStatement
    | TruncateTableStatement
    | CreateDatabaseStatement
    | DropDatabaseStatement
)


def is_definition(sql: str) -> bool:
    """Return True for a text that begins as one of the definitions that there are. The work is linear."""
    first, at = _word(sql, 0)
    defined = _DEFINED.get(first)
    return defined is not None and (defined == ("",) or _word(sql, at)[0] in defined)


def _word(sql: str, at: int) -> tuple[str, int]:
    """Return the next word in lower case, and where it ends."""
    while (blank := _BLANK.match(sql, at)) is not None:
        at = blank.end()
    word = _WORD.match(sql, at)
    assert word is not None, "it matches nothing too"
    return word[0].lower(), word.end()


def parse_ddl(sql: str, database: str | None) -> DefinitionStatement | None:
    """Parse a definition of a stored table; return None for a statement of another kind.

    `database` holds a table that is named without one. Raises QueryError for what cannot be read or has no
    meaning here.
    """
    if _DDL.match(sql) is None:
        return None
    if len(sql) > CHARACTERS_MAX:
        raise QueryError("the definition is too long", expected=f"at most {CHARACTERS_MAX} characters")
    words = Words(sql)
    if words.accept("CREATE", "TABLE"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        definition, notes = create_table(words, _table(words, database))
        return CreateTableStatement(definition, if_not_exists, notes)
    if words.accept("DROP", "TABLE"):
        if_exists = words.accept("IF", "EXISTS")
        name = _table(words, database)
        words.accept("FORCE")
        words.end()
        return DropTableStatement(name, if_exists)
    if words.accept("CREATE", "DATABASE") or words.accept("CREATE", "SCHEMA"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        name_of_database = words.name("the name of a database")
        words.end()
        return CreateDatabaseStatement(name_of_database, if_not_exists)
    if words.accept("DROP", "DATABASE") or words.accept("DROP", "SCHEMA"):
        if_exists = words.accept("IF", "EXISTS")
        name_of_database = words.name("the name of a database")
        words.end()
        return DropDatabaseStatement(name_of_database, if_exists)
    if words.accept("TRUNCATE"):
        words.accept("TABLE")
        name = _table(words, database)
        words.end()
        return TruncateTableStatement(name)
    if words.accept("ALTER", "TABLE"):
        name = _table(words, database)
        if (of_partition := _partition_change(words, name)) is not None:
            return of_partition
        changes = [*_changes(words)]
        while words.accept(","):
            changes += _changes(words)
        words.end()
        return AlterTableStatement(name, tuple(changes))
    raise words.unsupported("CREATE, DROP, ALTER or TRUNCATE TABLE, CREATE or DROP DATABASE")


def _table(words: Words, database: str | None) -> TableName:
    first = words.name("the name of a table")
    if words.accept("."):
        return TableName(first, words.name("the name of a table"))
    if database is None:
        raise QueryError(
            f"table {first} is named without its database", action=f"write DATABASE.{first}, or USE one first"
        )
    return TableName(database, first)


def _changes(words: Words) -> list[ColumnChange]:
    if words.accept("ADD"):
        words.accept("COLUMN")
        if words.accept("("):
            added: list[ColumnChange] = [AddColumn(column(words).column)]
            while words.accept(","):
                added.append(AddColumn(column(words).column))
            words.expect(")")
            return added
        change = AddColumn(column(words).column)
        if words.at("AFTER") or words.at("FIRST"):
            raise words.unsupported("a new column at the end")
        return [change]
    if words.accept("DROP"):
        words.accept("COLUMN")
        return [DropColumn(words.name("the name of a column"))]
    if words.accept("RENAME", "COLUMN"):
        old = words.name("the name of a column")
        words.accept("TO")
        return [RenameColumn(old, words.name("the new name of the column"))]
    raise words.unsupported("ADD or DROP of COLUMN or PARTITION, or RENAME COLUMN")


def _partition_change(
    words: Words, table: TableName
) -> AddTablePartitionStatement | DropTablePartitionStatement | None:
    """Parse what follows `ALTER TABLE name`, in Doris' words, to the end of the statement; None where it is
    about columns."""
    if words.accept("ADD", "PARTITION"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        name = words.name("the name of a partition")
        start_ms, end_ms = _bounds(words)
        notes: list[str] = []
        if words.at("("):
            notes = notes_on(properties(words), f"partition {name}")
        if words.at("DISTRIBUTED"):
            raise words.unsupported("the buckets of the table")
        words.end()
        partition = AddPartition(name, start_ms, end_ms, if_not_exists)
        return AddTablePartitionStatement(table, partition, tuple(notes))
    if words.accept("DROP", "PARTITION"):
        if_exists = words.accept("IF", "EXISTS")
        name = words.name("the name of a partition")
        words.accept("FORCE")
        words.end()
        return DropTablePartitionStatement(table, name, if_exists)
    return None


def _bounds(words: Words) -> tuple[int | None, int]:
    """Return the bounds of `VALUES [("…"), ("…"))` or `VALUES LESS THAN ("…")`, in ms since the epoch."""
    words.expect("VALUES")
    if words.accept("LESS", "THAN"):
        return None, _bound(words)
    if not words.accept("["):
        raise words.unsupported('VALUES [("…"), ("…")) or VALUES LESS THAN ("…")')
    start_ms = _bound(words)
    words.expect(",")
    end_ms = _bound(words)
    words.expect(")")
    return start_ms, end_ms


def _bound(words: Words) -> int:
    if words.at("MAXVALUE") or words.at("(", "MAXVALUE"):
        raise words.unsupported("a date or a time, since a partition is one unit of time")
    words.expect("(")
    text = words.text("a bound")
    words.expect(")")
    if _INSTANT.fullmatch(text) is None:
        raise _no_bound(text)
    try:
        instant = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise _no_bound(text) from error
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _no_bound(text: str) -> QueryError:
    return SqlSyntaxError(
        "bad SQL: a bound of a partition", expected="'2026-11-21' or '2026-11-21 00:00:00'", found=repr(text)
    )
