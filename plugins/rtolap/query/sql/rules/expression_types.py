"""The type of every expression of a statement: columns out of the catalogue, the rest by their operands.

Nodes are looked at from the inside outwards, so that the operands of one are known; `Typed.note` says what a
rewritten node has.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from rtolap.aggregates.group_concat import JOINED_TEXTS
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.query.engine_functions.checksums import CRC32
from rtolap.query.sql import types as sql_types
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.totals import TOTAL
from rtolap.query.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DATETIME,
    DOUBLE,
    HUGEINT,
    INT,
    NULL,
    QUOTIENT,
    STRING,
    TIME,
    SqlType,
)

_SAME_TYPE = (
    exp.Paren,
    exp.Alias,
    exp.Min,
    exp.Max,
    exp.Distinct,
    exp.Filter,
    exp.Window,
    exp.AnyValue,
    exp.Subquery,
)
_SAME_TYPE_OVER_ROWS = (
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.IgnoreNulls,
    exp.Nullif,
)
_BOOLEAN = (
    exp.Predicate,
    exp.Connector,
    exp.Not,
    exp.Boolean,
    exp.Exists,
    exp.Between,
    exp.LogicalAnd,
    exp.LogicalOr,
)
_MOVED = (exp.DateAdd, exp.DateSub, exp.TimestampAdd)
_DATE_UNITS = frozenset(("DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))
_FIXED: dict[type[exp.Expr], SqlType] = {
    **dict.fromkeys(
        (exp.Concat, exp.ConcatWs, exp.DPipe, exp.Left, exp.Right, exp.Substring, exp.Upper), STRING
    ),
    **dict.fromkeys((exp.Lower, exp.Trim, exp.Pad, exp.Repeat, exp.Replace, exp.Reverse, exp.Chr), STRING),
    **dict.fromkeys((exp.TimeToStr, exp.GroupConcat, exp.Hex, exp.RegexpReplace, exp.Dayname), STRING),
    **dict.fromkeys((exp.MD5, exp.SHA, exp.SHA2, exp.NumberToStr, exp.SubstringIndex, exp.ToBase64), STRING),
    **dict.fromkeys((exp.BitLength, exp.Ascii, exp.Week, exp.TimestampDiff), BIGINT),
    **dict.fromkeys(
        (exp.Sin, exp.Cos, exp.Tan, exp.Atan, exp.Atan2, exp.Degrees, exp.Radians, exp.Pi), DOUBLE
    ),
    **dict.fromkeys((exp.Acos, exp.Asin, exp.Cot), DOUBLE),
    **dict.fromkeys(
        (exp.Count, exp.Length, exp.StrPosition, exp.Year, exp.Quarter, exp.Month, exp.Day), BIGINT
    ),
    **dict.fromkeys((exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second), BIGINT),
    **dict.fromkeys(
        (exp.WeekOfYear, exp.Extract, exp.DateDiff, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Grouping),
        BIGINT,
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), HUGEINT),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), HUGEINT),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), HUGEINT),
    **dict.fromkeys((exp.Sqrt, exp.Ln, exp.Log, exp.Exp, exp.Pow, exp.Rand), DOUBLE),
    **dict.fromkeys((exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop), DOUBLE),
    **dict.fromkeys((exp.TsOrDsToDate, exp.Date, exp.LastDay, exp.CurrentDate), DATE),
    **dict.fromkeys((exp.AtTimeZone, exp.TimestampTrunc, exp.CurrentTimestamp, exp.UnixToTime), DATETIME),
    exp.Sign: INT,
    exp.HexString: BINARY,
    exp.Unhex: BINARY,
    exp.FromBase64: BINARY,
    exp.Null: NULL,
}
_MACROS: dict[str, SqlType] = {
    **dict.fromkeys(
        (
            *("left", "right", "from", "substring", "lpad", "rpad", "repeat", "number_text"),
            *("substring_index", "conv", "text", "regexp_substr", "to_base64", "json", "json_unquote"),
            *(
                "json_list",
                "half_hour",
                "digits",
                "time_sign",
                "ordinal",
                "grouped",
                "unsigned_zero",
                "group",
            ),
            *("year_digits", "joined", "repeated", "insert", "char", "ltrim", "rtrim", "replace", "bin"),
            *("monthname", "sha1", "bytes_base64", "upper", "bytes_text"),
        ),
        STRING,
    ),
    **dict.fromkeys(("locate", "ascii", "whole_part", "text_integer", "find_in_set"), BIGINT),
    **dict.fromkeys(("strcmp", "json_valid", "week", "week_year", "yearweek", "time_to_sec"), BIGINT),
    **dict.fromkeys(("period_add", "period_diff", "time_part"), BIGINT),
    **dict.fromkeys(("makedate", "read_date", "read_day", "read_week"), DATE),
    **dict.fromkeys(
        ("moment_at", "plus_time", "shifted", "text_moment", "number_moment", "from_unixtime"), DATETIME
    ),
    **dict.fromkeys(
        ("text_number", "round_even", "sqrt", "ln", "log", "acos", "asin", "exp", "pow", "cot"), DOUBLE
    ),
    **dict.fromkeys(("bits", "whole", "left_shift", "right_shift"), HUGEINT),
    **dict.fromkeys(("time", "timediff", "time_of", "time_now", "between", "maketime", "within_time"), TIME),
    **dict.fromkeys(
        ("ord", "strlen", "octet_length", "weekday", "datesub", "date_diff", "unix_timestamp"), BIGINT
    ),
    **dict.fromkeys(("from_base64", "unhex"), BINARY),
    CRC32: BIGINT,
    JOINED_TEXTS: STRING,
    **dict.fromkeys((each.engine_name for each in SKETCH_BYTES), BINARY),
}


class Typed:
    """The types of the expressions of a tree, inferred from the inside out."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._types: dict[int, SqlType | None] = {}
        self._noted: list[exp.Expr] = []  # an identity is one only as long as its node lives
        self._columns: dict[int, SqlType | None] = {}

    def walk(self, tree: exp.Expr) -> Iterator[exp.Expr]:
        """Yield the nodes from the inside out. A node's operands have their types when it is yielded."""
        for scope in self._context.scopes(tree):
            self._resolve(scope)
            nodes = list(scope.walk())
            root = scope.expression
            if isinstance(root, exp.Select):
                shown = {id(node) for each in root.expressions for node in each.walk()}
                nodes = [n for n in nodes if id(n) not in shown] + [n for n in nodes if id(n) in shown]
            for node in reversed(nodes):
                if node is not root and isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
                    continue
                yield node
            self.note(root, self._of_query(root))

    def of(self, node: exp.Expr | None) -> SqlType | None:
        return None if node is None else self._types.get(id(node))

    def note(self, node: exp.Expr, kind: SqlType | None) -> None:
        self._types[id(node)] = kind
        self._noted.append(node)

    def infer(self, node: exp.Expr) -> SqlType | None:
        """Return the type that the node's operands give it."""
        fixed = _FIXED.get(type(node))
        if fixed is not None:
            return fixed
        match node:
            case exp.Column():
                return self._columns.get(id(node))
            case exp.Literal():
                return sql_types.of_literal(node)
            case exp.Parameter():
                return self._parameter(node)
            case exp.Cast():
                return sql_types.of_declared(node.to)
            case exp.Case() | exp.If() | exp.Coalesce() | exp.Greatest() | exp.Least():
                return sql_types.common(self.of(branch) for branch in branches(node))
            case exp.Sum():
                return self._sum(node)
            case exp.Avg():
                return self._quotient([node.this])
            case exp.Div():
                total = node.this.this if node.this.meta.get(TOTAL) else node.this
                return self._quotient([total, node.expression])
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                whole = sql_types.of_literal(node.this).is_integer
                return (
                    sql_types.of_integer(-int(node.this.this)) if whole else sql_types.of_literal(node.this)
                )
            case exp.Neg() | exp.Abs():
                return self._arithmetic([node.this])
            case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
                return self._moved(node.this, node.expression.args.get("unit"))
            case exp.Add() if isinstance(node.this, exp.Interval):
                return self._moved(node.expression, node.this.args.get("unit"))
            case exp.Mul():
                kind = self._arithmetic([node.this, node.expression])
                if kind is not None and kind.kind == "decimal":
                    scales = [each.scale for each in map(self.of, (node.this, node.expression)) if each]
                    return SqlType("decimal", sum(scales))
                return kind
            case exp.Add() | exp.Sub() | exp.Mod():
                return self._arithmetic([node.this, node.expression])
            case exp.IntDiv():
                return BIGINT
            case exp.Round() | exp.Trunc() | exp.Ceil() | exp.Floor():
                kind = self.of(node.this)
                if kind is not None and kind.kind == "double" and kind != QUOTIENT:
                    return SqlType("double", shown=_digits(node.args.get("decimals")))
                if kind is None or kind.kind != "decimal":
                    return kind
                digits = _digits(node.args.get("decimals"))
                return SqlType("decimal", kind.scale if digits < 0 else min(kind.scale, digits))
            case exp.Anonymous():
                name = str(node.this).lower().removeprefix("mysql_")
                if name in ("divided", "modulo"):
                    return self._arithmetic(node.expressions[:2])
                return _MACROS.get(name)
        if isinstance(node, _MOVED):
            return self._moved(node.this, node.args.get("unit"))
        if isinstance(node, _BOOLEAN):
            return BOOLEAN
        if isinstance(node, (*_SAME_TYPE, *_SAME_TYPE_OVER_ROWS)):
            return self.of(node.this if node.this is not None else next(iter(node.expressions), None))
        return None

    def _parameter(self, node: exp.Parameter) -> SqlType | None:
        try:
            return sql_types.of_value(self._context.fold(node))
        except LookupError:  # not bound yet
            return None

    def _sum(self, node: exp.Sum) -> SqlType | None:
        kind = self.of(node.this)
        if kind is None or kind.kind in ("decimal", "double"):
            return kind
        return HUGEINT if kind.is_integer or kind.kind == "boolean" else None

    def _arithmetic(self, operands: list[exp.Expr]) -> SqlType | None:
        kinds = [BIGINT if kind == BOOLEAN else kind for kind in map(self.of, operands)]
        known = [kind for kind in kinds if kind is not None and kind.is_number]
        return sql_types.of_arithmetic(known) if len(known) == len(kinds) else None

    def _quotient(self, operands: list[exp.Expr]) -> SqlType:
        kinds = list(map(self.of, operands))
        exact = all(
            kind is not None and (kind.is_exact or kind.kind in ("boolean", "null")) for kind in kinds
        )
        return QUOTIENT if exact else DOUBLE

    def _moved(self, moment: exp.Expr, unit: exp.Expr | None) -> SqlType | None:
        kind = self.of(moment)
        if kind == DATE:
            return DATE if is_days(unit) else DATETIME
        return kind if kind == DATETIME else None

    def _resolve(self, scope: Scope) -> None:
        for column in scope.columns:
            self._columns[id(column)] = self._column(scope, column)
            self._noted.append(column)

    def _column(self, scope: Scope | None, column: exp.Column) -> SqlType | None:
        if not column.table:
            named = scope.expression if scope is not None else None
            if isinstance(named, exp.Select):
                return next((self.of(e) for e in named.expressions if e.alias_or_name == column.name), None)
            return None
        while scope is not None:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table):
                return self._of_table(source, column.name)
            if isinstance(source, Scope):
                return self._shown(source.expression, column.name)
            scope = scope.parent
        return None

    def _of_table(self, table: exp.Table, name: str) -> SqlType | None:
        catalogue = self._context.catalogue
        if table.db or table.name not in catalogue.all_names():
            return None
        if table.name in catalogue.cubes:
            for partial in catalogue.cubes[table.name].partials:
                if partial.name == name:
                    return sql_types.of_column(partial.type)
        column = catalogue.columns(table.name).get(name)
        return None if column is None else sql_types.of_column(column)

    def _shown(self, query: exp.Expr, name: str) -> SqlType | None:
        """Return the type of the column that a query gives that name; those of a UNION's sides go by
        place."""
        names = query.named_selects if isinstance(query, exp.Query) else []
        return self.shown(query, names.index(name)) if name in names else None

    def shown(self, query: exp.Expr, position: int) -> SqlType | None:
        """Return the type of a column of a query, by its place."""
        query = query.unnest()
        if isinstance(query, exp.SetOperation):
            return sql_types.common(
                (self.shown(query.this, position), self.shown(query.expression, position))
            )
        shown = query.expressions if isinstance(query, exp.Select) else []
        return self.of(shown[position]) if position < len(shown) else None

    def _of_query(self, query: exp.Expr) -> SqlType | None:
        """Return the type of a query that is used as a value."""
        return self.shown(query, 0) if isinstance(query, exp.Query) else None


def branches(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions that a choice gives one of."""
    match node:
        case exp.Case():
            branches = [each.args["true"] for each in node.args["ifs"]]
            default = node.args.get("default")
            return branches if default is None else [*branches, default]
        case exp.If():
            other = node.args.get("false")
            return [node.args["true"]] if other is None else [node.args["true"], other]
    return [node.this, *node.expressions]


def _digits(written: exp.Expr | None) -> int:
    """Return the digits that ROUND leaves behind the point; -1 if they are not written in the statement."""
    if written is None:
        return 0
    if isinstance(written.unnest(), exp.Neg):
        return 0 if isinstance(written.unnest().this, exp.Literal) else -1
    number = written.unnest()
    return int(number.this) if isinstance(number, exp.Literal) and str(number.this).isdigit() else -1


def is_days(unit: exp.Expr | None) -> bool:
    return unit is not None and str(unit.name).upper().removesuffix("S") in _DATE_UNITS
