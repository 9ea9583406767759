"""The checks of columns of bytes, and of measures that merge the sketches in them."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.aggregates.registry import AGGREGATES
from rtolap.base.errors import DefinitionError
from rtolap.column_types import BINARY, ColumnType
from rtolap.model.cube import Measure, Schema
from rtolap.model.problems import Key, Problem
from rtolap.model.table import VALUE, Table


def not_computed_with(name: str, kind: ColumnType) -> ColumnType:
    """Return the type of a column in an expression. Raises DefinitionError for one of bytes."""
    if kind == BINARY:
        raise DefinitionError(
            f"column {name} holds sketches",
            expected="columns of values in expressions and conditions",
            found=f"{name} {kind}",
            action="leave it out: measures with input: sketch merge it",
        )
    return kind


def binary_column_problems(table: Table) -> Iterator[Problem]:
    """Return the problems of a table's columns of bytes. The columns' names and types are sound."""
    for position, column in enumerate(table.columns):
        if column.column_type != BINARY:
            continue
        if column.expression is not None:
            key: Key = ("columns", position, "expression")
            yield Problem(key, "bytes are not computed", expected="a column that is read")
        if column.source != VALUE:
            key = ("columns", position, "source")
            yield Problem(key, "bytes stand in values alone", expected=VALUE, found=repr(column.source))


def given_sketch_problems(schema: Schema, measure: Measure, kind: ColumnType, key: Key) -> list[Problem]:
    """Return the problems of a measure's input. `kind`: of its column."""
    function = AGGREGATES[measure.function]
    if measure.input == "values":
        return []  # whether the column fits is the function's to say
    if not function.takes_sketches:
        takes = ", ".join(name for name, each in AGGREGATES.items() if each.takes_sketches)
        message = f"{measure.function} merges no sketches"
        return [Problem((*key, "input"), message, expected=f"input: sketch of {takes}", found="sketch")]
    if kind != BINARY:
        message = f"{measure.function} with input: sketch does not fit the column"
        found = f"{measure.column} {kind}"
        return [Problem((*key, "column"), message, expected="a column of type binary", found=found)]
    form = schema.given_sketches[str(measure.column)]
    others = [
        other
        for other in schema.cube.measures
        if other.input == "sketch" and other.column == measure.column and _is_unlike(schema, other, form)
    ]
    if not others:
        return []
    message = f"column {measure.column} holds sketches of one family and size"
    expected = "one function and one size for all measures of the column"
    return [Problem((*key, "column"), message, expected=expected, found=", ".join(map(str, others)))]


def _is_unlike(schema: Schema, measure: Measure, form: object) -> bool:
    return any(partial.accumulator.given_form not in (None, form) for partial in schema.partials_of(measure))
