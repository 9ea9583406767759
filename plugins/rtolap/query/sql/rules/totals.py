"""Aggregates of an expression over events, from partials: the algebra.

For an expression `e` over events of which a partial row stands for `__rows` many:

    S(e)  sum of e over the row's events       S(d) = d · __rows    S(m) = m__sum    S(-e) = -S(e)
    N(e)  number of its non-null values        N(d) = __rows where d is not null     N(m) = m__count
    X(e)  its minimum, maximum or sketch       X(d) = d             X(m) = m__min

where `d` depends on dimensions only, `m` is a measure's column. S(CASE WHEN d THEN e …) takes S of every
branch; S(e · d) = S(e) · d; S(e ± d) = S(e) ± d · N(e). S(COALESCE(e, d)) = S(e) + COALESCE(d · (__rows −
N(e)), 0) where N(e) > 0, else d · __rows: an event with neither e nor d adds nothing, and takes nothing away.
N(COALESCE(e, d)) = __rows where d is not null, else N(e). Sums of two measures are not in it: SQL's NULLs
make SUM(a + b) differ from SUM(a) + SUM(b).

In a SELECT over several cubes a row of the join stands for every pair of an event of one and an event of the
other: as many as the product of their `__rows`. S and N of a column of one cube are therefore multiplied by
the `__rows` of the others, and X stays as it is where repeating a value changes nothing.

Arithmetic built here is marked, so that it is computed in numbers as wide as a SUM's, not as one event's.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rtolap.aggregates.accumulator import Accumulator
from rtolap.base.errors import QueryError
from rtolap.model.cube import ROWS
from rtolap.query.catalogue import missing_measure, not_a_dimension
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import CubeScope

TOTAL = "total"  # mark of arithmetic that is over many events: `rules.operators` widens it


class EventTotals:
    def __init__(self, cube: CubeScope, others: Sequence[CubeScope] = ()) -> None:
        """Create totals over the events of a SELECT.

        Args:
            cube: the cube whose measures are asked for.
            others: the other cubes that the SELECT joins it with.
        """
        self.cube = cube
        self.others = tuple(others)
        self.known = {partial.name: partial for partial in cube.schema.partials}

    def rows(self) -> exp.Expr:
        """Return how many events a row of the joined relation stands for."""
        return self._repeated(_rows_of(self.cube))

    def has_measure(self, e: exp.Expr) -> bool:
        return any(self.cube.is_measure(column) for column in e.find_all(exp.Column))

    def _repeated(self, total: exp.Expr) -> exp.Expr:
        """Return a total of this cube's events, each as often as the others have events beside it."""
        for other in self.others:
            total = _total(exp.Mul(this=exp.paren(total, copy=False), expression=_rows_of(other)))
        return total

    def partial(self, column: exp.Column, suffix: str, function: str) -> exp.Expr:
        name = f"{column.name}__{suffix}"
        if name not in self.known:
            raise missing_measure(function, column.name, self.cube.schema)
        return self.cube.column(name)

    def sum(self, e: exp.Expr) -> exp.Expr:
        """Return S(e)."""
        if isinstance(e, exp.Column) and e.table == self.cube.alias and f"{e.name}__sum" in self.known:
            return self._repeated(self.partial(e, "sum", "SUM"))
        if not self.has_measure(e):
            return self._weighted(e)
        match e:
            case exp.Paren() | exp.Alias():
                return exp.paren(self.sum(e.this))
            case exp.Column():
                return self._repeated(self.partial(e, "sum", "SUM"))
            case exp.Neg():
                return _total(exp.Neg(this=exp.paren(self.sum(e.this))))
            case exp.Case() | exp.If():
                return self._branches(e, self.sum)
            case exp.Mul() if not (self.has_measure(e.this) and self.has_measure(e.expression)):
                left, right = e.this, e.expression
                if self.has_measure(right):
                    left, right = right, left
                return _total(exp.Mul(this=exp.paren(self.sum(left)), expression=exp.paren(right.copy())))
            case exp.Add() | exp.Sub() if not (self.has_measure(e.this) and self.has_measure(e.expression)):
                return self._shifted(e)
            case exp.Coalesce() if len(e.expressions) == 1 and not self.has_measure(e.expressions[0]):
                return self._coalesced(e.this, e.expressions[0])
        raise self._unanswerable("SUM", e)

    def count(self, e: exp.Expr) -> exp.Expr:
        """Return N(e)."""
        if not self.has_measure(e):
            if isinstance(e, exp.Literal | exp.Boolean | exp.Star):
                return self.rows()
            is_not_null = exp.Is(this=exp.paren(e.copy()), expression=exp.Null()).not_()
            return exp.case().when(is_not_null, self.rows())
        match e:
            case exp.Paren() | exp.Alias():
                return self.count(e.this)
            case exp.Column():
                if e.name == self.cube.schema.table.time.column and f"{e.name}__count" not in self.known:
                    return self.rows()  # an event without an event time is rejected, so none is null
                return self._repeated(self.partial(e, "count", "COUNT"))
            case exp.Neg():
                return self.count(e.this)
            case exp.Case() | exp.If():
                return self._branches(e, self.count)
            case exp.Mul() | exp.Add() | exp.Sub() if not (
                self.has_measure(e.this) and self.has_measure(e.expression)
            ):
                left, right = e.this, e.expression
                if self.has_measure(right):
                    left, right = right, left
                is_not_null = exp.Is(this=exp.paren(right.copy()), expression=exp.Null()).not_()
                return exp.case().when(is_not_null, self.count(left))
            case exp.Coalesce() if len(e.expressions) == 1 and not self.has_measure(e.expressions[0]):
                is_not_null = exp.Is(this=exp.paren(e.expressions[0].copy()), expression=exp.Null()).not_()
                return exp.case().when(is_not_null, self.rows()).else_(self.count(e.this))
        raise self._unanswerable("COUNT", e)

    def pick(self, e: exp.Expr, accumulator: Accumulator, function: str) -> exp.Expr:
        """Return X(e), the operand of MIN, MAX or the merge of sketches."""
        if self.others and self.has_measure(e) and not accumulator.is_idempotent:
            raise self._counts_pairs(function, e)
        column = accumulator.column_name(e.name)
        if isinstance(e, exp.Column) and e.table == self.cube.alias and column in self.known:
            return self.partial(e, accumulator.name, function)
        if not self.has_measure(e):
            if not accumulator.takes_dimensions and not isinstance(e, exp.Null):
                raise self._unanswerable(function, e)
            return e.copy()
        match e:
            case exp.Paren():
                return self.pick(e.this, accumulator, function)
            case exp.Column():
                return self.partial(e, accumulator.name, function)
            case exp.Case() | exp.If():
                return self._branches(e, lambda branch: self.pick(branch, accumulator, function))
        raise self._unanswerable(function, e)

    def total(self, e: exp.Expr, accumulator: Accumulator, function: str) -> exp.Expr:
        """Return S(e), N(e) or X(e), whichever takes the place of the accumulator's partials."""
        match accumulator.algebra:
            case "sum":
                return self.sum(e)
            case "count":
                return self.count(e)
            case "pick":
                return self.pick(e, accumulator, function)

    def _weighted(self, e: exp.Expr) -> exp.Expr:
        value = e.copy()
        if isinstance(e.unnest(), exp.Predicate | exp.Connector | exp.Not | exp.Boolean):
            value = exp.cast(value, exp.DataType.Type.INT)
        return _total(exp.Mul(this=exp.paren(value), expression=self.rows()))

    def _branches(self, e: exp.Expr, transform: object) -> exp.Expr:
        assert callable(transform)
        conditions = [e.this] if isinstance(e, exp.If) else [branch.this for branch in e.args["ifs"]]
        if isinstance(e, exp.Case) and e.this is not None:
            conditions.append(e.this)
        for condition in conditions:
            for column in condition.find_all(exp.Column):
                if self.cube.is_measure(column):
                    raise not_a_dimension(column.name, self.cube.schema)
        if isinstance(e, exp.If):
            pairs = [(e.this, e.args["true"])]
            default = e.args.get("false")
        else:
            pairs = [(branch.this, branch.args["true"]) for branch in e.args["ifs"]]
            default = e.args.get("default")
        built = exp.Case(
            this=e.this.copy() if isinstance(e, exp.Case) and e.this is not None else None,
            ifs=[exp.If(this=when.copy(), true=transform(then)) for when, then in pairs],
        )
        if default is not None:
            built.set("default", transform(default))
        return built

    def _shifted(self, e: exp.Binary) -> exp.Expr:
        left, right = e.this, e.expression
        if self.has_measure(left):
            return _total(type(e)(this=exp.paren(self.sum(left)), expression=_times(right, self.count(left))))
        return _total(type(e)(this=_times(left, self.count(right)), expression=exp.paren(self.sum(right))))

    def _coalesced(self, e: exp.Expr, default: exp.Expr) -> exp.Expr:
        zero = exp.Literal.number(0)
        if isinstance(default, exp.Literal) and str(default.this) == "0":
            return exp.func("COALESCE", self.sum(e), zero)
        present = exp.func("COALESCE", self.count(e), zero)
        absent = _total(exp.Sub(this=self.rows(), expression=exp.paren(present)))
        filled = exp.func("COALESCE", _times(default, absent), zero.copy())
        total = _total(exp.Add(this=exp.paren(self.sum(e)), expression=filled))
        return (
            exp.case()
            .when(exp.GT(this=present.copy(), expression=zero.copy()), total)
            .else_(self._weighted(default))
        )

    def _counts_pairs(self, function: str, e: exp.Expr) -> QueryError:
        joined = " and ".join(cube.schema.cube.name for cube in (self.cube, *self.others))
        return QueryError(
            f"{function}({user_sql(e)}) over a join of {joined} counts each value once for every pair",
            expected="COUNT, SUM, AVG, MIN, MAX or a count of distinct values",
            action="aggregate each cube in a subquery of its own and join the results",
        )

    def _unanswerable(self, function: str, e: exp.Expr) -> QueryError:
        return QueryError(
            f"cube {self.cube.schema.cube.name} cannot answer {function}({user_sql(e)}) exactly",
            expected="one measure column, times or plus expressions of dimensions, or a CASE over dimensions",
            action="aggregate each column on its own, or add a column to the stream table that holds it",
        )


def _rows_of(cube: CubeScope) -> exp.Expr:
    column = cube.column(ROWS)
    return exp.func("COALESCE", column, exp.Literal.number(1)) if cube.nullable else column


def _times(value: exp.Expr, number: exp.Expr) -> exp.Expr:
    return _total(exp.Mul(this=exp.paren(value.copy()), expression=exp.paren(number)))


def _total(node: exp.Expr) -> exp.Expr:
    node.meta[TOTAL] = True
    return node
