"""Filtered measures: a measure with a condition is one of a computed column that holds a value only of the
events that fulfil it.

`{function: sum, column: price, where: "country = 'DE'"}` is the sum of the column `CASE WHEN country = 'DE'
THEN price END`. Of a condition there is also the column that is 1 of each event that fulfils it: its count
tells whether other events were there, which `SUM(CASE WHEN … THEN price ELSE 0 END)` depends on.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Protocol

from rtolap.model.expressions.grammar import parse_expression
from rtolap.model.expressions.nodes import names_of
from rtolap.model.table import Column, Table

NAME_CHARS_MAX = 64
_MARK_CHARS = 8  # of a checksum in hexadecimal digits


def condition_name(where: str) -> str:
    """Return the name of the column that is 1 where the condition holds. It stands in files: it is the same
    for ever."""
    return f"where_{zlib.crc32(where.encode()):0{_MARK_CHARS}x}"


def filtered_name(column: str, where: str) -> str:
    """Return the name of a filtered column that was declared without one."""
    end = f"_{condition_name(where)}"
    return column[: NAME_CHARS_MAX - len(end)].rstrip("_") + end


def condition_column(name: str, where: str) -> Column:
    """Return the column that is 1 where the condition holds, else null."""
    return Column(name, "int", expression=f"CASE WHEN {where} THEN 1 END")


def filtered_column(name: str, column: Column, where: str) -> Column:
    """Return the column that holds another one's values where the condition holds, else null."""
    return Column(name, column.type, expression=f"CASE WHEN {where} THEN `{column.name}` END")


class Declared(Protocol):
    """See `model.cube.Measure`."""

    @property
    def column(self) -> str | None: ...

    @property
    def where(self) -> str | None: ...

    @property
    def source(self) -> str | None: ...

    @property
    def adds_values(self) -> bool: ...


def conditions_of(measures: Sequence[Declared]) -> dict[str, str]:
    """Return condition → the column that is 1 where it holds: a count's that is declared, or one beside the
    measures that need it."""
    found: dict[str, str] = {}
    for measure in measures:
        if measure.where is not None and measure.column is None and measure.source is not None:
            found.setdefault(measure.where, measure.source)
    for measure in measures:
        if measure.where is not None and measure.adds_values:
            found.setdefault(measure.where, condition_name(measure.where))
    return found


def filtered_columns_of(table: Table, measures: Sequence[Declared]) -> dict[str, Column]:
    """Return the columns that filtered measures aggregate, by name."""
    found = {name: condition_column(name, where) for where, name in conditions_of(measures).items()}
    for measure in measures:
        if measure.where is None or measure.source is None:
            continue
        if measure.column is None:
            found[measure.source] = condition_column(measure.source, measure.where)
        else:
            column = table.column(measure.column)
            found[measure.source] = filtered_column(measure.source, column, measure.where)
    return found


def with_inputs(table: Table, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns and what they are made of, each behind what it is made of, each once.

    Filtered columns may be made of computed ones, and those of columns that are read.
    """
    found: dict[str, Column] = {}

    def add(column: Column) -> None:
        if column.expression is not None:
            for name in names_of(parse_expression(column.expression)):
                add(table.column(name))
        found.setdefault(column.name, column)

    for column in columns:
        add(column)
    return tuple(found.values())
