"""ALTER TABLE … ADD PARTITION and DROP PARTITION, in Doris' words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rtolap.base.errors import QueryError, SqlSyntaxError
from rtolap.protocols.stored_tables.messages import AddPartition, TableName
from rtolap.query.stored.ddl_table import notes_on, properties
from rtolap.query.stored.words import Words

_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.0+)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AddTablePartition:
    """`notes`: what the statement requested and does not get, as warnings."""

    name: TableName
    partition: AddPartition
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropTablePartition:
    name: TableName
    partition: str
    if_exists: bool


def partition_change(words: Words, table: TableName) -> AddTablePartition | DropTablePartition | None:
    """Parse what follows `ALTER TABLE name`, to the end of the statement; None where it is about columns."""
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
        asked = AddPartition(name, start_ms, end_ms, if_not_exists)
        return AddTablePartition(table, asked, tuple(notes))
    if words.accept("DROP", "PARTITION"):
        if_exists = words.accept("IF", "EXISTS")
        name = words.name("the name of a partition")
        words.accept("FORCE")
        words.end()
        return DropTablePartition(table, name, if_exists)
    return None


def _bounds(words: Words) -> tuple[int | None, int]:
    """`VALUES [("…"), ("…"))` or `VALUES LESS THAN ("…")`, in ms since the epoch."""
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
