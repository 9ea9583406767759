"""Conditions as SQL trees → `model.predicate` trees, where that says exactly the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec
from sqlglot import exp

from rtolap.column_types import ColumnType
from rtolap.model.cube import Schema, TimeUnit
from rtolap.model.predicate import And, Compare, CompareOp, In, IsNull, Like, Not, Or, Predicate, Scalar
from rtolap.query.approval.value_lists import value_list_of
from rtolap.query.sql.timeline import as_datetime, next_start, text

_ANY_WEEKDAY = 0  # no part of a date is a week
_OPS: dict[type[exp.Expr], CompareOp] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_FLIPPED: dict[CompareOp, CompareOp] = {
    "eq": "eq",
    "ne": "ne",
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
}
_OPPOSITE: dict[CompareOp, CompareOp] = {
    "eq": "ne",
    "ne": "eq",
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
}
_MIDNIGHTS = ("day_start", "week_start", "month_start", "quarter_start", "year_start")
_INT_RANGE = {"int": 2**31, "bigint": 2**63}


@dataclass(frozen=True)
class FilterColumns:
    """The columns that conditions may be about.

    Attributes:
        starts: names of columns that contain the starts of a unit of time.
    """

    types: Mapping[str, ColumnType]
    starts: Collection[str] = ()

    @classmethod
    def of_cube(cls, schema: Schema) -> FilterColumns:
        names = schema.cube.all_dimensions
        return cls({name: schema.dimension_type(name) for name in names}, schema.cube.time_columns)


class FilterBuilder:
    """`build` gives None for anything that it cannot say: the engine then does it."""

    def __init__(self, columns: FilterColumns, alias: str, fold: Callable[[exp.Expr], object]) -> None:
        self.columns = columns
        self.alias = alias
        self.fold = fold

    def build(self, node: exp.Expr) -> Predicate | None:
        match node:
            case exp.Paren():
                return self.build(node.this)
            case exp.And() | exp.Or():
                left, right = self.build(node.this), self.build(node.expression)
                if left is None or right is None:
                    return None
                return And((left, right)) if isinstance(node, exp.And) else Or((left, right))
            case exp.Not():
                term = self.build(node.this)
                return None if term is None else self._negated(term)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                column = self._column(node.this)
                return None if column is None else IsNull(column)
            case exp.Like():
                return self._like(node)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(node.this, _OPS[type(node)], node.expression)
        return None

    def _negated(self, term: Predicate) -> Predicate:
        """Return the opposite of a term without a NOT, as NOT prunes nothing.

        `NOT a >= b` is `a < b`, for NULL as well.
        """
        match term:
            case And(terms=terms):
                return Or(tuple(map(self._negated, terms)))
            case Or(terms=terms):
                return And(tuple(map(self._negated, terms)))
            case Compare(column=column, op=op) if self.columns.types[column].kind != "double":
                return msgspec.structs.replace(term, op=_OPPOSITE[op])
            case In() | IsNull() | Like():
                return msgspec.structs.replace(term, negated=not term.negated)
        return Not(term)  # a double may be NaN, which no comparison holds for

    def _compare(self, left: exp.Expr, op: CompareOp, right: exp.Expr) -> Predicate | None:
        column, constant = self._column(left), right
        if column is None:
            column, constant, op = self._column(right), left, _FLIPPED[op]
        if column is None:
            return self._calendar(left, _FLIPPED[op], right) or self._calendar(right, op, left)
        value = self._value(column, constant)
        return None if value is None else Compare(column, op, value)

    def _calendar(self, node: exp.Expr, op: CompareOp, constant: exp.Expr) -> Predicate | None:
        part = _calendar_part(node)
        column = None if part is None else self._column(part.column)
        if part is None or column is None or column not in self.columns.starts:
            return None
        return _as_range(column, part.unit, op, self._constant(constant))

    def _between(self, node: exp.Between) -> Predicate | None:
        low = self._compare(node.this, "ge", node.args["low"])
        high = self._compare(node.this, "le", node.args["high"])
        return None if low is None or high is None or node.args.get("symmetric") else And((low, high))

    def _in(self, node: exp.In) -> Predicate | None:
        if node.args.get("query") is not None or not node.expressions:
            return None
        column = self._column(node.this)
        found = value_list_of(node)
        if column is None:
            items = node.expressions if found is None else found.members.literals()
            terms = [self._calendar(node.this, "eq", item) for item in items]
            known = tuple(term for term in terms if term is not None)
            return Or(known) if len(known) == len(terms) else None
        if found is None:
            values = [self._value(column, item) for item in node.expressions]
        else:
            kind = self.columns.types[column]
            values = [in_terms_of(kind, constant) for constant in found.members.constants()]
        not_null = tuple(value for value in values if value is not None)
        return In(column, not_null) if len(not_null) == len(values) else None

    def _like(self, node: exp.Like) -> Predicate | None:
        column = self._column(node.this)
        if column is None or self.columns.types[column].kind != "string":
            return None
        pattern = self._constant(node.expression)
        if not isinstance(pattern, str) or "\\" in pattern:
            return None
        return Like(column, pattern, negated=bool(node.args.get("negate")))

    def _column(self, node: exp.Expr) -> str | None:
        node = node.unnest()
        if isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE:
            inner = self._column(node.this)  # DATE(day_start) is day_start: both begin at midnight
            return inner if inner in _MIDNIGHTS and inner in self.columns.starts else None
        if isinstance(node, exp.TsOrDsToDate | exp.Date) and isinstance(node.this, exp.Column):
            return self._column(exp.cast(node.this.copy(), exp.DataType.Type.DATE))
        if isinstance(node, exp.Column) and node.table == self.alias:
            return node.name if node.name in self.columns.types else None
        return None

    def _constant(self, node: exp.Expr) -> object:
        if node.find(exp.Column, exp.Query, exp.Rand):
            return None
        try:
            return self.fold(node)
        except LookupError:
            return None

    def _value(self, column: str, node: exp.Expr) -> Scalar:
        """Return the constant in the column's own terms; None if it has none, NULL included."""
        value = self._constant(node)
        return None if value is None else in_terms_of(self.columns.types[column], value)


def in_terms_of(kind: ColumnType, value: object) -> Scalar:
    """Return the value as the wire writes it for a column of this type.

    None if the type cannot represent it exactly.
    """
    match kind.kind:
        case "string":
            return value if isinstance(value, str) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "int" | "bigint":
            whole = _whole(value)
            bound = _INT_RANGE[kind.kind]
            return whole if whole is not None and -bound <= whole < bound else None
        case "double":
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                return None
            number = float(value)
            return number if number == value else None
        case "decimal":
            return _decimal(kind, value)
        case "date":
            instant = as_datetime(value)
            midnight = instant is not None and instant == datetime(instant.year, instant.month, instant.day)
            return instant.date().isoformat() if instant is not None and midnight else None
        case "timestamp":
            instant = as_datetime(value)
            return None if instant is None else text(instant)
    return None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return int(value) if value == int(value) else None


def _decimal(kind: ColumnType, value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    number = Decimal(value)
    if not number.is_finite():
        return None
    scaled = number.scaleb(kind.scale)
    if scaled != scaled.to_integral_value() or abs(scaled) >= Decimal(10) ** kind.precision:
        return None
    return f"{number:f}"


class _CalendarPart(NamedTuple):
    """The unit of time that an instant of `column` lies in."""

    column: exp.Column
    unit: TimeUnit


def _calendar_part(node: exp.Expr) -> _CalendarPart | None:
    """Return the year or the day that the node takes from a column; None for anything else.

    Other parts of a date, such as MONTH, are no ranges.
    """
    node = node.unnest()
    inner: exp.Expr | None = None
    unit: TimeUnit = "year"
    if isinstance(node, exp.Year):
        inner = _without_date(node.this)
    elif isinstance(node, exp.Extract) and node.name.upper() == "YEAR":
        inner = _without_date(node.expression)
    elif (dated := _without_date(node)) is not node:
        inner, unit = dated, "day"
    return _CalendarPart(inner, unit) if isinstance(inner, exp.Column) else None


def _as_range(column: str, unit: TimeUnit, op: CompareOp, value: object) -> Predicate | None:
    """Return `YEAR(c) = 2013` and `DATE(c) = '2013-01-02'` as ranges of `c`, so that they prune like any
    range.

    Return the exact predicate on the column itself for `<unit of column> <op> <value>`; None if there is
    none.
    """
    start = _start(unit, value)
    following = None if start is None else next_start(start, unit, _ANY_WEEKDAY)
    if start is None or following is None:
        return None
    low, high = text(start), text(following)
    match op:
        case "eq":
            return And((Compare(column, "ge", low), Compare(column, "lt", high)))
        case "ne":
            return Or((Compare(column, "lt", low), Compare(column, "ge", high)))
        case "lt" | "ge":
            return Compare(column, op, low)
        case "le":
            return Compare(column, "lt", high)
        case "gt":
            return Compare(column, "ge", high)
    return None


def _start(unit: TimeUnit, value: object) -> datetime | None:
    """Return where the unit that the constant names begins; None if it names none."""
    if unit == "year":
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return datetime(value, 1, 1) if 1 <= value <= datetime.max.year else None
    instant = as_datetime(value)
    is_midnight = instant is not None and instant == datetime(instant.year, instant.month, instant.day)
    return instant if is_midnight else None


def _without_date(node: exp.Expr) -> exp.Expr:
    """Return the inner expression of DATE(…) or CAST(… AS DATE); the node itself if it is neither."""
    node = node.unnest()
    is_cast = isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE
    return node.this.unnest() if is_cast or isinstance(node, exp.TsOrDsToDate | exp.Date) else node
