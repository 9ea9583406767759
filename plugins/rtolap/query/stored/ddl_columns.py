"""Parses a column of CREATE TABLE or ALTER TABLE ADD COLUMN."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rtolap.base.errors import UnsupportedSql
from rtolap.model.stored.table import AggregateFunction, StoredColumn
from rtolap.query.stored.words import Words

_FUNCTIONS: tuple[AggregateFunction, ...] = (
    "SUM",
    "MIN",
    "MAX",
    "REPLACE",
    "REPLACE_IF_NOT_NULL",
    "HLL_UNION",
    "BITMAP_UNION",
)
# Doris' names -> ours. Lengths of texts and widths below 32 bits are dropped.
_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "INTEGER"), "int"),
    "BIGINT": "bigint",
    "LARGEINT": "decimal(38,0)",
    **dict.fromkeys(("BOOLEAN", "BOOL"), "boolean"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    **dict.fromkeys(("DATE", "DATEV2"), "date"),
    **dict.fromkeys(("DATETIME", "DATETIMEV2", "TIMESTAMP"), "timestamp"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING", "TEXT"), "string"),
    "HLL": "hll",
    "BITMAP": "bitmap",
}
_DECIMALS = ("DECIMAL", "DECIMALV2", "DECIMALV3", "NUMERIC")
_WITH_LENGTH = ("CHAR", "VARCHAR", "DATETIME", "DATETIMEV2", "TINYINT", "SMALLINT", "INT", "BIGINT")


class DefinedColumn(NamedTuple):
    """A column of CREATE TABLE.

    Attributes:
        is_key: True if KEY stands beside the column.
    """

    column: StoredColumn
    is_key: bool


def column(words: Words) -> DefinedColumn:
    """Parse a column: `name type [KEY] [function] [[NOT] NULL] [DEFAULT value] [COMMENT 'text']`. Raises
    QueryError."""
    name = words.name("the name of a column")
    stored_column = StoredColumn(name, _type(words, name))
    is_key = False
    while True:
        if words.accept("NOT", "NULL"):
            stored_column = msgspec.structs.replace(stored_column, nullable=False)
        elif words.accept("NULL"):
            stored_column = msgspec.structs.replace(stored_column, nullable=True)
        elif words.accept("KEY"):
            is_key = True
        elif words.accept("COMMENT"):
            words.text("a comment")
        elif words.accept("DEFAULT"):
            default = None if words.accept("NULL") else words.literal(f"a constant default of {name}")
            stored_column = msgspec.structs.replace(stored_column, default=default)
        else:
            function = next((each for each in _FUNCTIONS if words.accept(each)), None)
            if function is None:
                return DefinedColumn(stored_column, is_key)
            stored_column = msgspec.structs.replace(stored_column, aggregate=function)


def _type(words: Words, name: str) -> str:
    written = words.word(f"the type of column {name}")
    if written in _DECIMALS:
        words.expect("(")
        precision, scale = words.number("a precision"), 0
        if words.accept(","):
            scale = words.number("a scale")
        words.expect(")")
        return f"decimal({precision},{scale})"
    if written not in _TYPES:
        known = ", ".join((*_TYPES, "DECIMAL(p,s)"))
        raise UnsupportedSql(f"unsupported type {written} of column {name}", expected=f"one of {known}")
    if written in _WITH_LENGTH and words.accept("("):
        words.number("a length")
        words.expect(")")
    return _TYPES[written]
