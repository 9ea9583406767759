"""The cube does not store the event time: conditions on it become conditions on a derived time dimension.

`ts >= '2013-01-02'` becomes `day_start >= '2013-01-02'` because the instant is the start of a day;
`date_trunc('day', ts)`, `DATE(ts)`, `YEAR(ts)` and the like read the coarsest dimension that determines them.
The event time reads as local time in the table's zone, as the derived dimensions do. `time_bounds` rewrites
conditions whose instant is not the start of a dimension's unit.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlglot import exp

from rtolap.aggregates.registry import BY_SQL_KEY
from rtolap.base.errors import QueryError
from rtolap.model.cube import MINUTES, TIME_UNITS, TimeUnit
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import Context, CubeScope, cube_scopes
from rtolap.query.sql.rules.time_bounds import clock_warnings, time_bound
from rtolap.query.sql.timeline import as_datetime, coarsest_for, text

_MICROSECOND = timedelta(microseconds=1)
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}
_PARTS: dict[type[exp.Expr], TimeUnit] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "day",
    exp.DayOfYear: "day",
    exp.Week: "day",
    exp.WeekOfYear: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}
_MACROS: dict[str, TimeUnit] = dict.fromkeys(("MYSQL_WEEK", "MYSQL_WEEK_YEAR", "MYSQL_YEARWEEK"), "day")
_FORMATS: dict[str, TimeUnit] = {
    **dict.fromkeys("Yy", "year"),
    **dict.fromkeys("mbB", "month"),
    **dict.fromkeys("djaAuwUWV", "day"),
    **dict.fromkeys("HIkl", "hour"),
    "M": "minute",
    **dict.fromkeys("Ss", "second"),
}


def event_time(tree: exp.Expr, context: Context) -> exp.Expr:
    for cube in list(cube_scopes(tree, context)):
        name = cube.schema.table.time.column
        is_dimension = name in cube.schema.cube.all_dimensions
        for column in cube.columns():
            if column.name == name and not is_dimension:
                context.tree_changed()
                _rewrite(column, cube, context)
            elif column.name in cube.schema.cube.time_columns:
                context.tree_changed()
                _keep_weeks(column, cube)
    return tree


def _rewrite(column: exp.Column, cube: CubeScope, context: Context) -> None:
    node: exp.Expr = column
    as_date = False
    while isinstance(node.parent, exp.Paren | exp.TsOrDsToDate | exp.TsOrDsToTimestamp | exp.Date | exp.Cast):
        node = node.parent
        if isinstance(node, exp.Cast):
            if node.to.this not in exp.DataType.TEMPORAL_TYPES:
                break
            as_date = as_date or node.to.this in (exp.DataType.Type.DATE, exp.DataType.Type.DATE32)
        elif isinstance(node, exp.TsOrDsToDate | exp.Date):
            as_date = True
    parent = node.parent
    function = None if parent is None else BY_SQL_KEY.get(parent.key)
    if function is not None and function.takes_event_time and not as_date:
        return  # a measure, or an error: the next rule says
    if isinstance(parent, exp.Distinct):
        raise _unanswerable(parent, cube)
    if isinstance(parent, exp.DateTrunc | exp.TimestampTrunc):
        _truncate(parent, column, cube)
        return
    unit = _unit_of(parent)
    if unit is None and as_date:
        unit = "day"
    if unit is not None:
        column.replace(cube.column(_column_for(unit, parent or node, cube)))
        return
    if isinstance(parent, exp.Between) and parent.this is node:
        low = exp.GTE(this=parent.this.copy(), expression=parent.args["low"].copy())
        high = exp.LTE(this=parent.this.copy(), expression=parent.args["high"].copy())
        parent.replace(
            exp.paren(
                exp.and_(
                    _compare(low, True, cube, context, parent), _compare(high, True, cube, context, parent)
                )
            )
        )
        return
    if isinstance(parent, exp.GT | exp.GTE | exp.LT | exp.LTE):
        parent.replace(_compare(parent, parent.this is node, cube, context))
        return
    if isinstance(parent, exp.EQ):
        other = parent.expression if parent.this is node else parent.this
        if other.find(exp.Column, exp.Query) is None:
            bounds = [
                _compare(kind(this=node.copy(), expression=other.copy()), True, cube, context, parent)
                for kind in (exp.GTE, exp.LTE)
            ]
            parent.replace(exp.paren(exp.and_(*bounds)))
            return
    raise _unanswerable(parent or node, cube)


def _compare(
    comparison: exp.Expr,
    column_left: bool,
    cube: CubeScope,
    context: Context,
    standing: exp.Expr | None = None,
) -> exp.Expr:
    """Return the comparison as a condition on a derived time dimension.

    Args:
        standing: the condition in the user's statement, if that is not the comparison itself.
    """
    kind = type(comparison) if column_left else _FLIPPED[type(comparison)]
    constant = comparison.expression if column_left else comparison.this
    if constant.find(exp.Column, exp.Query):
        raise _unanswerable(comparison, cube)
    try:
        value = context.fold(constant)
    except LookupError:  # only described, not executed: any unit has the right type
        finest = cube.schema.cube.time_columns
        return exp.GTE(this=cube.column(finest[0]), expression=exp.Null()) if finest else exp.null()
    instant = as_datetime(value)
    if instant is None:
        raise QueryError(
            f"{user_sql(comparison)} compares the event time with something else",
            expected="a timestamp such as '2013-01-02 10:00:00'",
            found=repr(value),
        )
    context.warnings += clock_warnings(constant, cube)
    condition = comparison if standing is None else standing
    if kind in (exp.GT, exp.LTE):  # event times are whole microseconds: > x is >= x + 1 µs
        if instant == datetime.max:  # nothing is later, and an event time is never NULL
            return exp.false() if kind is exp.GT else exp.true()
        kind = exp.GTE if kind is exp.GT else exp.LT
        instant += _MICROSECOND
    bound = time_bound(instant, kind is exp.GTE, condition, cube)
    context.warnings += bound.warnings
    if bound.start is None:
        return exp.true() if kind is exp.LT else exp.false()
    literal = exp.cast(exp.Literal.string(text(bound.start)), exp.DataType.Type.TIMESTAMP)
    return kind(this=cube.column(f"{bound.unit}_start"), expression=literal)


def _truncate(function: exp.Expr, column: exp.Column, cube: CubeScope) -> None:
    unit = _named_unit(function.args["unit"])
    if unit is None:
        raise _unanswerable(function, cube)
    name = _column_for(unit, function, cube)
    if name == f"{unit}_start":
        function.replace(cube.column(name))
        return
    column.replace(cube.column(name))
    if unit == "week":
        _shift_weeks(function, cube)
    elif unit in MINUTES and unit != "minute":  # the engine has no name for it
        width = exp.Interval(this=exp.Literal.string(str(MINUTES[unit])), unit=exp.var("MINUTE"))
        function.replace(exp.Anonymous(this="TIME_BUCKET", expressions=[width, function.this.copy()]))


def _keep_weeks(column: exp.Column, cube: CubeScope) -> None:
    """Have DATE_TRUNC('week', day_start) give the cube's weeks, as DATE_TRUNC('week', ts) does."""
    parent = column.parent
    if isinstance(parent, exp.DateTrunc | exp.TimestampTrunc) and _named_unit(parent.args["unit"]) == "week":
        if column.name == "week_start":
            parent.replace(column.copy())
        else:
            _shift_weeks(parent, cube)


def _shift_weeks(function: exp.Expr, cube: CubeScope) -> None:
    """Replace the engine's weeks, which begin on Monday, by those of the cube."""
    days = cube.schema.cube.days_to_first_weekday
    if days:
        width = exp.Interval(this=exp.Literal.string(str(days)), unit=exp.var("DAY"))
        shifted = function.copy()
        shifted.set("this", exp.paren(exp.Sub(this=function.this.copy(), expression=width)))
        function.replace(exp.paren(exp.Add(this=shifted, expression=width.copy())))


def _unit_of(function: exp.Expr | None) -> TimeUnit | None:
    if function is None:
        return None
    if isinstance(function, exp.Extract):
        part = str(function.this.name).lower()
        return _named_unit(function.this) or ("day" if part.startswith(("dow", "doy", "isodow")) else None)
    if isinstance(function, exp.TimeToStr):
        pattern = function.args["format"]
        if not isinstance(pattern, exp.Literal):
            return None
        letters = str(pattern.this).replace("%-", "%").split("%")[1:]
        units = [_FORMATS.get(piece[:1]) for piece in letters]
        if not units or None in units:
            return None
        known = [unit for unit in units if unit is not None]
        return min(known, key=TIME_UNITS.index)
    if isinstance(function, exp.Anonymous):
        return _MACROS.get(str(function.this))
    return _PARTS.get(type(function))


def _named_unit(node: exp.Expr) -> TimeUnit | None:
    name = str(node.name).lower().removesuffix("s")  # as MySQL and others write intervals
    return next((unit for unit in TIME_UNITS if unit == name), None)


def _column_for(unit: TimeUnit, function: exp.Expr, cube: CubeScope) -> str:
    column = coarsest_for(unit, cube.schema.cube.time_dimensions)
    if column is None:
        raise _unanswerable(function, cube, needed=unit)
    return f"{column}_start"


def _unanswerable(node: exp.Expr, cube: CubeScope, needed: TimeUnit | None = None) -> QueryError:
    columns = ", ".join(cube.schema.cube.time_columns) or "no time dimension"
    return QueryError(
        f"cube {cube.schema.cube.name} cannot answer {user_sql(node)}: it keeps the event time as {columns}",
        expected=f"a time dimension of a {needed} or finer"
        if needed
        else "a derived time dimension, "
        "date_trunc, a part of the date, or a comparison with the start of one",
        action="use a derived dimension, or add a finer one to the cube",
    )
