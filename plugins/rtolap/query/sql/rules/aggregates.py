"""Aggregates over events → aggregates over partial rows. See `totals` for the algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from rtolap.aggregates.accumulator import Accumulator
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.group_concat import SEPARATOR
from rtolap.aggregates.registry import AGGREGATES, APPROX_DISTINCT, BY_SQL_KEY, COUNT_DISTINCT
from rtolap.base.errors import QueryError
from rtolap.column_types import TIMESTAMP, ColumnType
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.catalogue import not_a_dimension
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import Context, CubeScope, cube_scopes, joined_cubes, own_aggregates
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.templates import places, read_template
from rtolap.query.sql.rules.texts import TEXT_BYTES_MAX
from rtolap.query.sql.rules.totals import TOTAL, EventTotals

_SPELLINGS = {"firstvalue": "first", "lastvalue": "last"}  # without OVER
_TEXT_BYTES_MAX = exp.Literal.number(TEXT_BYTES_MAX)
_OVER = Callable[[exp.Expr], exp.Expr]


def aggregates(tree: exp.Expr, context: Context) -> exp.Expr:
    for cubes in joined_cubes(tree, context):
        for node in own_aggregates(cubes[0]):
            context.tree_changed()
            _replace(node, _totals_of(node, cubes), context)
    for cube in cube_scopes(tree, context):
        partials = {partial.name for partial in cube.schema.partials}
        for column in cube.columns():
            if cube.is_measure(column) and column.name not in partials:
                raise not_a_dimension(column.name, cube.schema)
    return tree


def _totals_of(node: exp.Expr, cubes: list[CubeScope]) -> EventTotals:
    """Return the totals of the cube whose measures the aggregate is about."""
    columns = list((node.parent if isinstance(node.parent, exp.Filter) else node).find_all(exp.Column))
    measured = [cube for cube in cubes if any(cube.is_measure(column) for column in columns)]
    if len(measured) > 1:
        names = " and ".join(cube.schema.cube.name for cube in measured)
        raise QueryError(
            f"{user_sql(node)[:200]} needs single events of {names}",
            expected="measures of one cube in an aggregate",
            action="aggregate each cube in a subquery of its own and join the results",
        )
    (subject,) = measured or cubes[:1]
    return EventTotals(subject, [cube for cube in cubes if cube is not subject])


def _replace(node: exp.Expr, totals: EventTotals, context: Context) -> None:
    cube = totals.cube
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

    target.replace(_translate(node, totals, filtered, context))


def _translate(node: exp.Expr, totals: EventTotals, filtered: _OVER, context: Context) -> exp.Expr:
    if isinstance(node, exp.GroupConcat):
        return _group_concat(node, totals, filtered, context)
    argument = node.this
    distinct = isinstance(argument, exp.Distinct)
    function = BY_SQL_KEY.get(_SPELLINGS.get(node.key, node.key))
    if isinstance(node, exp.Grouping) or _is_repeatable(node):
        _only_dimensions(node, totals)
        return filtered(node.copy())
    match node:
        case exp.Count() if distinct:
            return _count_distinct(node, argument.expressions, totals, filtered)
        case exp.ApproxDistinct():
            return _count_distinct(node, [argument], totals, filtered)
        case exp.Count() if len(node.expressions) > 0:
            raise QueryError(f"{user_sql(node)} needs DISTINCT")
    if function is not None and not distinct:
        parameters = _parameters(function, node, context)
        read = _read(function, argument or exp.Star(), totals, filtered, parameters)
        return _local(read, totals.cube) if _is_instant(function, argument, totals.cube) else read
    if function is not None:
        _only_dimensions(node, totals)  # repeating a row changes none of these
        return filtered(node.copy())
    names = sorted(
        {each.title for each in AGGREGATES.values() if not each.in_count} - {APPROX_DISTINCT.title}
    )
    raise QueryError(
        f"cube {totals.cube.schema.cube.name} cannot answer {user_sql(node)}",
        expected=f"{', '.join(names)}, COUNT(DISTINCT …) or {APPROX_DISTINCT.title}",
        action="partial aggregates do not hold what this function needs",
    )


def _is_repeatable(node: exp.Expr) -> bool:
    """Tell whether repeating a row cannot change the result."""
    return isinstance(node, exp.AnyValue | exp.LogicalAnd | exp.LogicalOr)


def _group_concat(node: exp.Expr, totals: EventTotals, filtered: _OVER, context: Context) -> exp.Expr:
    """Return GROUP_CONCAT of dimensions, whose values stand as often as they have events, or of a measure."""
    order = node.this if isinstance(node.this, exp.Order) else None
    operand = node.this if order is None else order.this
    is_distinct = isinstance(operand, exp.Distinct)
    separator = node.args.get("separator") or exp.Literal.string(SEPARATOR)
    if not totals.has_measure(node):
        if is_distinct:
            return filtered(node.copy())
        repeated = node.copy()
        inner = repeated.this.this if order is not None else repeated.this
        inner.replace(macro("REPEATED", operand, separator, totals.rows(), _TEXT_BYTES_MAX))
        return filtered(repeated)
    values = operand.expressions if is_distinct else []
    keys = [] if order is None else order.expressions
    is_kept = len(values) == 1 and all(each.this == values[0] and not each.args.get("desc") for each in keys)
    if not is_kept:
        raise QueryError(
            f"cube {totals.cube.schema.cube.name} cannot answer {user_sql(node)}: it keeps no single events",
            expected="GROUP_CONCAT(DISTINCT m), ascending, of a group_concat measure; or of dimensions",
            action="write DISTINCT, and ORDER BY the same column without DESC or none",
        )
    function = AGGREGATES["group_concat"]
    written = exp.GroupConcat(this=values[0].copy(), separator=separator.copy())
    return _read(function, values[0], totals, filtered, _parameters(function, written, context))


def _parameters(function: Aggregate, node: exp.Expr, context: Context) -> dict[str, exp.Expr]:
    """Return the further arguments of a call. Raises QueryError for one that is not what it has to be."""
    found: dict[str, exp.Expr] = {}
    for name, expected in function.parameters.items():
        parameter = node.args[name]
        is_right = parameter.find(exp.Column, exp.AggFunc) is None
        if is_right:
            try:
                is_right = function.takes_parameter(name, context.fold(parameter))
            except LookupError:
                pass  # of a prepared statement: the engine's function looks at it
            except (TypeError, ValueError):
                is_right = False
        if not is_right:
            what = f"{function.title} by {user_sql(parameter)}"
            raise QueryError(what, expected=f"{expected}, the same for all rows")
        found[name] = parameter
    return found


def _read(
    function: Aggregate,
    argument: exp.Expr,
    totals: EventTotals,
    filtered: _OVER,
    parameters: Mapping[str, exp.Expr],
) -> exp.Expr:
    """Return the engine's SQL for the result over partial rows, with what stands for the argument's
    partials.
    """
    accumulators = function.accumulators()
    by_name = {each.name: each for each in accumulators}
    template = read_template(function.read(_read_kind(function, argument, totals)))
    for place in places(template):
        if str(place.this) in parameters:
            place.replace(parameters[str(place.this)].copy())
            continue
        accumulator, over = by_name[str(place.this)], place.parent
        assert over is not None, "a place is inside an aggregate"
        place.replace(totals.total(argument, accumulator, function.name.upper()))
        if accumulator.algebra == "sum" and isinstance(over.parent, exp.Cast):
            over.parent.meta[TOTAL] = True
        over.replace(filtered(over.copy()))
    read: exp.Expr = template.this.pop()
    return read


def _read_kind(function: Aggregate, argument: exp.Expr, totals: EventTotals) -> ColumnType | None:
    """Return the type for `Aggregate.read`."""
    if not function.reads_source:
        return _kind(argument, function.accumulators()[0], totals)
    cube = totals.cube
    names = {column.name for column in argument.find_all(exp.Column) if cube.is_measure(column)}
    if len(names) > 1:
        what = f"{function.title} of {' and '.join(sorted(names))}"
        raise QueryError(what, expected="one measured column", action="ask for each by itself")
    if not names:  # a dimension, of which there is no such partial
        return None
    return cube.schema.column(names.pop()).column_type


def _kind(argument: exp.Expr, accumulator: Accumulator, totals: EventTotals) -> ColumnType | None:
    """Return the type of the partial, if the argument is a column of the cube by itself."""
    column = argument.unnest()
    if not isinstance(column, exp.Column) or column.table != totals.cube.alias:
        return None
    partial = totals.known.get(accumulator.column_name(column.name))
    return None if partial is None else partial.type


def _count_distinct(
    node: exp.Expr, arguments: list[exp.Expr], totals: EventTotals, filtered: _OVER
) -> exp.Expr:
    if not any(totals.has_measure(argument) for argument in arguments):
        distinct = exp.Count(this=exp.Distinct(expressions=[a.copy() for a in arguments]))
        return filtered(distinct)
    if len(arguments) != 1:
        _only_dimensions(node, totals)
    wanted = APPROX_DISTINCT if isinstance(node, exp.ApproxDistinct) else COUNT_DISTINCT
    other = COUNT_DISTINCT if wanted is APPROX_DISTINCT else APPROX_DISTINCT
    function = other if _keeps(other, node, totals) and not _keeps(wanted, node, totals) else wanted
    return _read(function, arguments[0], totals, filtered, {})


def _keeps(function: Aggregate, node: exp.Expr, totals: EventTotals) -> bool:
    """Tell whether the cube keeps what the function needs of all measures in the call."""
    (accumulator,) = function.accumulators()
    measures = (column for column in node.find_all(exp.Column) if totals.cube.is_measure(column))
    return all(accumulator.column_name(column.name) in totals.known for column in measures)


def _approximation(node: exp.Expr, totals: EventTotals) -> list[QueryWarning]:
    """Warn of a COUNT(DISTINCT …) that comes out of sketches; APPROX_COUNT_DISTINCT needs no warning."""
    if _keeps(COUNT_DISTINCT, node, totals):
        return []
    distinct = node.this
    if not isinstance(node, exp.Count) or not isinstance(distinct, exp.Distinct):
        return []
    schema = totals.cube.schema
    names = [column.name for column in distinct.find_all(exp.Column) if totals.cube.is_measure(column)]
    (sketch,) = APPROX_DISTINCT.accumulators()
    sketches = {name: totals.known.get(sketch.column_name(name)) for name in names}
    return [
        QueryWarning(
            "approximate",
            "Note",
            f"COUNT(DISTINCT {name}) is approximate: cube {schema.cube.name} keeps sketches of {name}, whose "
            f"counts have a standard error of about {sketch.accumulator.relative_error:.1%}; a measure "
            f"{COUNT_DISTINCT.name} counts exactly",
        )
        for name, sketch in sketches.items()
        if sketch is not None
    ]


def _is_instant(function: Aggregate, argument: exp.Expr, cube: CubeScope) -> bool:
    """Tell whether the result is an event time, as those of MIN and MAX are."""
    column = argument.unnest()
    name = cube.schema.table.time.column
    is_event_time = isinstance(column, exp.Column) and cube.is_measure(column) and column.name == name
    return is_event_time and function.accumulators()[0].result_type(TIMESTAMP) == TIMESTAMP


def _local(instant: exp.Expr, cube: CubeScope) -> exp.Expr:
    """Return the earliest or latest instant in local time.

    Not of local times: where clocks go back, they do too.
    """
    for zone in ("UTC", cube.schema.table.time.zone):
        instant = exp.AtTimeZone(this=instant, zone=exp.Literal.string(zone))
    return exp.paren(instant) if cube.schema.table.time.zone != "UTC" else instant.this.this


def _only_dimensions(node: exp.Expr, totals: EventTotals) -> None:
    for column in node.find_all(exp.Column):
        if totals.cube.is_measure(column):
            raise not_a_dimension(column.name, totals.cube.schema)
