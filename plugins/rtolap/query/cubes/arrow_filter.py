"""A `model.predicate` becomes a pyarrow dataset expression, which is three-valued as in SQL and is pushed
down to row groups."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from datetime import date, datetime
from math import isnan
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.filter import like_regex
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import Schema
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, Scalar, terms_of
from rtolap.query.cubes.flat_tree import flat_tree

_WIDE = decimal.Context(prec=76)


def arrow_filter(predicate: Predicate, schema: Schema) -> pc.Expression:
    """Return an expression that is true where the predicate is, and false or NULL elsewhere."""
    return _filter(predicate, schema, is_negated=False)


def _filter(predicate: Predicate, schema: Schema, *, is_negated: bool) -> pc.Expression:
    """Return the expression.

    Args:
        is_negated: True below a NOT, where NULL and false differ.
    """
    match predicate:
        case And():
            all_of = [_filter(term, schema, is_negated=is_negated) for term in terms_of(predicate)]
            return flat_tree(and_, all_of, empty=pc.scalar(True))
        case Or():
            any_of = [_filter(term, schema, is_negated=is_negated) for term in terms_of(predicate)]
            return flat_tree(or_, any_of, empty=pc.scalar(False))
        case Not(term=term):
            return ~_filter(term, schema, is_negated=True)
        case IsNull(column=column, negated=negated):
            missing = pc.field(column).is_null()
            return ~missing if negated else missing
        case Like(column=column, pattern=pattern, negated=negated):
            matches = pc.match_substring_regex(
                pc.field(column), like_regex(pattern)
            )  # Arrow's LIKE has escapes
            return ~matches if negated else matches
        case In(column=column, values=values, negated=negated):
            found = _among(column, values, schema, is_negated=is_negated or negated)
            return ~found if negated else found
        case Compare(column=column, op=op, value=value):
            left, right = pc.field(column), pc.scalar(_scalar(column, value, schema))
            match op:
                case "eq":
                    return left == right
                case "ne":
                    return left != right
                case "lt":
                    return left < right
                case "le":
                    return left <= right
                case "gt":
                    return left > right
                case "ge":
                    return left >= right


def _among(column: str, values: Sequence[Scalar], schema: Schema, *, is_negated: bool) -> pc.Expression:
    """Return whether the column's value is one of the values; `is_negated`: NULL for NULL."""
    field, kind = pc.field(column), schema.dimension_type(column)
    known = [_scalar(column, value, schema).as_py() for value in values]
    if kind.kind == "double":  # a set tells 0.0 from -0.0, and finds NaN
        known = [each for each in known if not isnan(each)] + [-0.0, 0.0] * (0.0 in known)
    found = field.isin(pa.array(known, arrow_type(kind)))
    never = pc.less(field, field)  # false, and NULL for NULL
    return found | never if is_negated else found


def _scalar(column: str, value: Scalar, schema: Schema) -> Any:
    kind = schema.dimension_type(column)
    if value is None:
        return pa.scalar(None, arrow_type(kind))
    if kind.kind == "decimal":
        exact = _WIDE.create_decimal(str(value)).quantize(
            decimal.Decimal(1).scaleb(-kind.scale), context=_WIDE
        )
        return pa.scalar(exact, arrow_type(kind))
    if kind.kind == "date":
        return pa.scalar(date.fromisoformat(str(value)), arrow_type(kind))
    if kind.kind == "timestamp":
        return pa.scalar(datetime.fromisoformat(str(value)), arrow_type(kind))
    return pa.scalar(value, arrow_type(kind))
