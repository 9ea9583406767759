"""Aggregates over events → aggregates over partial rows. See `totals` for the algebra."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from sqlglot import exp

from rtolap.base.errors import QueryError
from rtolap.model.types import ColumnType
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.catalogue import not_a_dimension
from rtolap.query.sketches import HLL_ESTIMATE
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import Context, CubeScope, cube_scopes, is_aggregated, own_aggregates
from rtolap.query.sql.rules.totals import TOTAL, Totals

_OVER = Callable[[exp.Expr], exp.Expr]


def aggregates(tree: exp.Expr, context: Context) -> exp.Expr:
    for cube in list(cube_scopes(tree, context)):
        if is_aggregated(cube):
            for node in own_aggregates(cube):
                _replace(node, cube, context)
    for cube in cube_scopes(tree, context):
        partials = {partial.name for partial in cube.schema.partials}
        for column in cube.columns():
            if cube.is_measure(column) and column.name not in partials:
                raise not_a_dimension(column.name, cube.schema)
    return tree


def _replace(node: exp.Expr, cube: CubeScope, context: Context) -> None:
    totals = Totals(cube)
    context.warnings += _approximation(node, totals)
    target: exp.Expr = node
    condition: exp.Expr | None = None
    if isinstance(node.parent, exp.Filter):
        target, condition = node.parent, node.parent.expression
        for column in condition.find_all(exp.Column):
            if cube.is_measure(column):
                raise not_a_dimension(column.name, cube.schema)

    def filtered(aggregate: exp.Expr) -> exp.Expr:
        if condition is None:
            return aggregate
        return exp.Filter(this=aggregate, expression=condition.copy())

    target.replace(_translate(node, totals, filtered))


def _translate(node: exp.Expr, totals: Totals, filtered: _OVER) -> exp.Expr:
    argument = node.this
    distinct = isinstance(argument, exp.Distinct)
    match node:
        case exp.Count() if distinct:
            return _count_distinct(node, argument.expressions, totals, filtered)
        case exp.ApproxDistinct():
            return _count_distinct(node, [argument], totals, filtered)
        case exp.Count():
            if len(node.expressions) > 0:
                raise QueryError(f"{user_sql(node)} needs DISTINCT")
            total = filtered(exp.Sum(this=totals.count(argument or exp.Star())))
            return exp.cast(exp.func("COALESCE", total, exp.Literal.number(0)), exp.DataType.Type.BIGINT)
        case exp.Sum() if not distinct:
            total = filtered(exp.Sum(this=totals.sum(argument)))
            return _as_declared(total, argument, totals)
        case exp.Avg() if not distinct:
            total = exp.cast(filtered(exp.Sum(this=totals.sum(argument))), exp.DataType.Type.DOUBLE)
            total.meta[TOTAL] = True
            number = filtered(exp.Sum(this=totals.count(argument)))
            return exp.paren(
                exp.Div(this=total, expression=exp.func("NULLIF", number, exp.Literal.number(0)))
            )
        case exp.Min() | exp.Max() if not distinct:
            suffix = "min" if isinstance(node, exp.Min) else "max"
            picked = filtered(type(node)(this=totals.pick(argument, suffix, suffix.upper())))
            return _local(picked, totals.cube) if _is_event_time(argument, totals.cube) else picked
        case exp.Sum() | exp.Avg() | exp.Min() | exp.Max() | exp.LogicalAnd() | exp.LogicalOr():
            _only_dimensions(node, totals)  # repeating a row changes none of these
            return filtered(node.copy())
    raise QueryError(
        f"cube {totals.cube.schema.cube.name} cannot answer {user_sql(node)}",
        expected="COUNT, SUM, MIN, MAX, AVG, COUNT(DISTINCT …) or APPROX_COUNT_DISTINCT",
        action="partial aggregates do not hold what this function needs",
    )


def _count_distinct(node: exp.Expr, arguments: list[exp.Expr], totals: Totals, filtered: _OVER) -> exp.Expr:
    if not any(totals.has_measure(argument) for argument in arguments):
        distinct = exp.Count(this=exp.Distinct(expressions=[a.copy() for a in arguments]))
        return filtered(distinct)
    if len(arguments) != 1:
        _only_dimensions(node, totals)
    picked = totals.pick(arguments[0], "hll", "APPROX_DISTINCT")
    sketches = filtered(exp.Anonymous(this="LIST", expressions=[picked]))
    estimate = exp.Anonymous(this=HLL_ESTIMATE, expressions=[sketches])
    return exp.cast(estimate, exp.DataType.Type.BIGINT)


def _approximation(node: exp.Expr, totals: Totals) -> list[QueryWarning]:
    """Warn of a COUNT(DISTINCT …) that comes out of sketches; APPROX_COUNT_DISTINCT needs no warning."""
    distinct = node.this
    if not isinstance(node, exp.Count) or not isinstance(distinct, exp.Distinct):
        return []
    schema = totals.cube.schema
    names = [column.name for column in distinct.find_all(exp.Column) if totals.cube.is_measure(column)]
    return [
        QueryWarning(
            "approximate",
            "Note",
            f"COUNT(DISTINCT {name}) is approximate: cube {schema.cube.name} keeps sketches of {name}, whose "
            f"counts have a standard error of about {1.04 / sqrt(1 << lg_k):.1%}",
        )
        for name in names
        if (lg_k := schema.lg_k.get(f"{name}__hll")) is not None
    ]


def _as_declared(total: exp.Expr, argument: exp.Expr, totals: Totals) -> exp.Expr:
    """A sum of 32-bit values is declared to fit 64 bits: cast it so, instead of the engine's 128."""
    column = argument.unnest()
    if isinstance(column, exp.Column) and column.table == totals.cube.alias:
        partial = totals.known.get(f"{column.name}__sum")
        if partial is not None and partial.type == ColumnType("bigint"):
            declared = exp.cast(total, exp.DataType.Type.BIGINT)
            declared.meta[TOTAL] = True
            return declared
    return total


def _is_event_time(argument: exp.Expr, cube: CubeScope) -> bool:
    column = argument.unnest()
    name = cube.schema.table.time.column
    return isinstance(column, exp.Column) and cube.is_measure(column) and column.name == name


def _local(instant: exp.Expr, cube: CubeScope) -> exp.Expr:
    """The earliest or latest instant in local time. Not of local times: where clocks go back, they do too."""
    for zone in ("UTC", cube.schema.table.time.zone):
        instant = exp.AtTimeZone(this=instant, zone=exp.Literal.string(zone))
    return exp.paren(instant) if cube.schema.table.time.zone != "UTC" else instant.this.this


def _only_dimensions(node: exp.Expr, totals: Totals) -> None:
    for column in node.find_all(exp.Column):
        if totals.cube.is_measure(column):
            raise not_a_dimension(column.name, totals.cube.schema)
