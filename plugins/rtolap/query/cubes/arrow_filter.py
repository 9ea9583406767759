"""A `model.predicate` becomes a pyarrow dataset expression, which is three-valued as in SQL and is pushed
down to row groups."""

from __future__ import annotations

import decimal
from datetime import date, datetime
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.filter import like_regex
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import Schema
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate, Scalar

_WIDE = decimal.Context(prec=76)


def arrow_filter(predicate: Predicate, schema: Schema) -> pc.Expression:
    match predicate:
        case And(terms=terms):
            return reduce(and_, (arrow_filter(term, schema) for term in terms), pc.scalar(True))
        case Or(terms=terms):
            return reduce(or_, (arrow_filter(term, schema) for term in terms), pc.scalar(False))
        case Not(term=term):
            return ~arrow_filter(term, schema)
        case IsNull(column=column, negated=negated):
            missing = pc.field(column).is_null()
            return ~missing if negated else missing
        case Like(column=column, pattern=pattern, negated=negated):
            matches = pc.match_substring_regex(
                pc.field(column), like_regex(pattern)
            )  # Arrow's LIKE has escapes
            return ~matches if negated else matches
        case In(column=column, values=values, negated=negated):
            # Comparisons keep NULL as SQL says; `isin` would turn it into FALSE.
            equal = (pc.field(column) == _scalar(column, value, schema) for value in values)
            any_of = reduce(or_, equal, pc.scalar(False))
            return ~any_of if negated else any_of
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
