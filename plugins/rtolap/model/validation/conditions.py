"""The checks of conditions over the columns of a table: those of filtered measures."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.column_types import BOOLEAN, ColumnType
from rtolap.model.cube import Measure, Schema
from rtolap.model.expressions.grammar import parse_expression
from rtolap.model.expressions.types import type_of
from rtolap.model.filtered import filtered_column
from rtolap.model.problems import Key, Problem, did_you_mean, error_problem
from rtolap.model.table import Table
from rtolap.model.validation.names import name_problems
from rtolap.model.validation.sketches import not_computed_with


def condition_problems(table: Table, where: str, key: Key) -> list[Problem]:
    """Return the problems of a condition over any column of a sound table, computed ones too."""

    def known(name: str) -> ColumnType:
        try:
            return not_computed_with(name, table.column(name).column_type)
        except NotFound:
            names = [column.name for column in table.columns]
            raise DefinitionError(
                f"no column {name}",
                expected=f"columns of table {table.name}",
                found=repr(name),
                action=did_you_mean(name, names) or None,
            ) from None

    try:
        kind = type_of(parse_expression(where), known)
    except DefinitionError as error:
        return [error_problem(error, key)]
    if kind == BOOLEAN:
        return []
    expected = "a boolean, or a comparison"
    return [Problem(key, "not a condition", expected=expected, found=f"{kind or 'NULL'}: {where}")]


def filter_problems(schema: Schema) -> Iterator[Problem]:
    """Return the problems of the measures' keys `where` and `name`."""
    first: dict[str, tuple[str | None, str]] = {}  # of each filtered column: what it is made of
    for position, measure in enumerate(schema.cube.measures):
        key: Key = ("measures", position)
        if measure.where is None:
            if measure.name is not None:
                expected = "the key where: other measures are asked for by their columns"
                where = "a name without a condition"
                yield Problem((*key, "name"), where, expected=expected, found=repr(measure.name))
            continue
        yield from _filter_problems(schema, measure, measure.where, key)
        made = [(measure.source, (measure.column, measure.where))]
        if measure.adds_values:
            made.append((schema.conditions[measure.where], (None, measure.where)))
        for name, parts in made:
            assert name is not None, "a condition makes a column"
            if first.setdefault(name, parts) != parts:
                column, where = first[name]
                expected = f"another name than that of {column or 'events'} where {where}"
                message = "the name of another filtered column"
                yield Problem((*key, "name"), message, expected=expected, found=repr(name))


def _filter_problems(schema: Schema, measure: Measure, where: str, key: Key) -> list[Problem]:
    table = schema.table
    found = [] if measure.name is None else name_problems(measure.name, (*key, "name"))
    columns = {column.name: column for column in table.columns}
    if measure.source in (*columns, *schema.cube.time_columns):
        expected = f"a name that is no column of table {table.name}"
        found.append(
            Problem((*key, "name"), "a column's name", expected=expected, found=repr(measure.source))
        )
    if measure.column == table.time.column:
        found.append(
            Problem(
                (*key, "column"),
                "the event time is not filtered",
                expected="another column",
                found=repr(measure.column),
            )
        )
    faults = condition_problems(table, where, (*key, "where"))
    if not faults and measure.column in columns:
        expression = filtered_column("filtered", columns[measure.column], where).expression
        assert expression is not None, "a filtered column is computed"
        try:  # the whole may be too large where the condition is not
            parse_expression(expression)
        except DefinitionError as error:
            faults.append(error_problem(error, (*key, "where")))
    return found + faults
