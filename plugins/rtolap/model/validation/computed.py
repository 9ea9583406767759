"""The check that computed columns can be computed exactly, out of columns that are read."""

from __future__ import annotations

from rtolap.base.errors import DefinitionError
from rtolap.column_types import ColumnType
from rtolap.model.expressions.grammar import parse_expression
from rtolap.model.expressions.types import assignment_fault, type_of
from rtolap.model.problems import Key, Problem, did_you_mean, error_problem
from rtolap.model.table import Column, Table
from rtolap.model.validation.sketches import not_computed_with


def computed_problems(table: Table) -> list[Problem]:
    """Return the problems of the expressions. The columns' names and types are sound."""
    read = {column.name: column.column_type for column in table.columns if column.expression is None}
    found: list[Problem] = []
    for position, column in enumerate(table.columns):
        if column.expression is not None:
            found += _problems(table, column, column.expression, read, ("columns", position))
    return found


def _problems(
    table: Table, column: Column, expression: str, read: dict[str, ColumnType], key: Key
) -> list[Problem]:
    roles = {table.time.column: "the event time", table.host_column: "the host"}
    roles[table.heartbeat_column] = "the mark of heartbeats"
    if column.name in roles:
        expected = "a column that is read from the record"
        return [Problem((*key, "expression"), f"{roles[column.name]} is computed", expected=expected)]
    if column.path is not None:
        return [Problem((*key, "path"), "a computed column is not read", found=repr(column.path))]
    if column.rounding != "refuse" and column.column_type.kind != "decimal":
        return []  # reported already

    def known(name: str) -> ColumnType:
        if name in read:
            return not_computed_with(name, read[name])
        raise DefinitionError(
            f"no column {name} is read from records",
            expected=f"columns of table {table.name} without an expression",
            found=repr(name),
            action=did_you_mean(name, read) or None,
        )

    try:
        type_found = type_of(parse_expression(expression), known)
    except DefinitionError as error:
        return [error_problem(error, (*key, "expression"))]
    expected = assignment_fault(column, type_found)
    if not expected:
        return []
    where = f"the expression does not fit {column.column_type}"
    return [Problem((*key, "expression"), where, expected=expected, found=f"{type_found}: {expression}")]
