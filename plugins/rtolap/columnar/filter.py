"""Predicates on Arrow tables, vectorised, with SQL's three-valued logic.

A dictionary column is judged by its dictionary, once a distinct value. Strings compare by their UTF-8 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import QueryError
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.literals import comparison, place
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate

_COMPARE: dict[str, Callable[..., pa.BooleanArray]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


def mask(table: pa.Table, predicate: Predicate) -> pa.BooleanArray:
    """Return TRUE where the row matches, otherwise FALSE (NULL matches nothing). Columns local or plain.

    QueryError: a column that is not there, or a value that does not compare with its column.
    """
    return pc.fill_null(_evaluate(table, predicate), False)


def _evaluate(table: pa.Table, predicate: Predicate) -> pa.BooleanArray:
    match predicate:
        case And(terms=terms):
            masks = [_evaluate(table, term) for term in terms]
            return reduce(pc.and_kleene, masks) if masks else _constant(True, table.num_rows)
        case Or(terms=terms):
            masks = [_evaluate(table, term) for term in terms]
            return reduce(pc.or_kleene, masks) if masks else _constant(False, table.num_rows)
        case Not(term=term):
            return pc.invert(_evaluate(table, term))
        case IsNull(column=name, negated=negated):
            column = _column(table, name)
            return column.is_valid() if negated else column.is_null()
        case Compare() | In() | Like():
            column = _column(table, predicate.column)
            if pa.types.is_dictionary(column.type):
                return _leaf(column.dictionary, predicate).take(column.indices)
            return _leaf(column, predicate)


def _column(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        raise QueryError(
            f"a filter names the column {name}", expected=f"one of {', '.join(table.column_names)}"
        )
    return single_chunk(table.column(name))


def _leaf(column: pa.Array, predicate: Compare | In | Like) -> pa.BooleanArray:
    match predicate:
        case Compare():
            return _compare(column, predicate)
        case In(values=values, negated=negated):
            mask = _is_in(column, values)
            return pc.invert(mask) if negated else mask
        case Like(pattern=pattern, negated=negated):
            if not pa.types.is_string(column.type):
                raise QueryError(
                    f"LIKE on {predicate.column}", expected="a string column", found=str(column.type)
                )
            mask = pc.match_substring_regex(column, like_regex(pattern))
            return pc.invert(mask) if negated else mask


def _compare(column: pa.Array, predicate: Compare) -> pa.BooleanArray:
    if predicate.value is None:
        return pa.nulls(len(column), pa.bool_())
    at = place(predicate.value, column.type)
    op = comparison(predicate.op, at)
    if isinstance(op, bool):
        return _where_valid(column, op)
    return _COMPARE[op](column, pa.scalar(at.value, column.type))


def _is_in(column: pa.Array, values: tuple[object, ...]) -> pa.BooleanArray:
    places = [place(value, column.type) for value in values if value is not None]  # type: ignore[arg-type]
    exact = [at.value for at in places if at.exact]
    if pa.types.is_floating(column.type) and 0.0 in exact:
        exact += [0.0, -0.0]  # they are equal, but not to `is_in`
    mask = pc.is_in(column, value_set=pa.array(exact, column.type))
    nothing = pa.scalar(None, pa.bool_())
    if any(value is None for value in values):
        mask = pc.if_else(mask, True, nothing)  # x IN (…, NULL) is TRUE or NULL
    return mask if not values else pc.if_else(column.is_valid(), mask, nothing)


def like_regex(pattern: str) -> str:
    """Return an RE2 pattern over the whole string for an SQL LIKE without escape character."""
    pieces = {"%": "(?s:.*)", "_": "(?s:.)"}
    return r"\A" + "".join(pieces.get(char) or re.escape(char) for char in pattern) + r"\z"


def _where_valid(column: pa.Array, value: bool) -> pa.BooleanArray:
    return pc.if_else(column.is_valid(), pa.scalar(value), pa.scalar(None, pa.bool_()))


def _constant(value: bool, rows: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value), rows)
