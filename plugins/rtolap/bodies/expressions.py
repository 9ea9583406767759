"""Expressions of a load over its batches, in the embedded engine, which sees one batch and nothing else.

Text that stands where a number or an instant is needed is read as one, as compatible servers do; what cannot
be computed for a row is null there.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from rtolap.base.errors import Corrupted, DefinitionError, Unavailable
from rtolap.bodies.clauses import Expression
from rtolap.bodies.options import OFFSET
from rtolap.format.groups import single_chunk

_NUMERIC = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.Abs,
    exp.Ceil,
    exp.Floor,
    exp.Round,
    exp.Sqrt,
    exp.Pow,
    exp.Ln,
    exp.Exp,
    exp.Sign,
    exp.UnixToTime,
)
_COMPARING = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.In,
    exp.Between,
    exp.Greatest,
    exp.Least,
)
_TIMES = (
    exp.DateAdd,
    exp.DateSub,
    exp.TsOrDsAdd,
    exp.DateDiff,
    exp.TsOrDsDiff,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.TimeToStr,
    exp.Quarter,
    exp.Hour,
    exp.Minute,
    exp.Second,
)
_TEXTS = (
    exp.Substring,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Length,
    exp.Replace,
    exp.Left,
    exp.Right,
    exp.Reverse,
    exp.StrPosition,
    exp.RegexpReplace,
    exp.RegexpLike,
    exp.Like,
    exp.Concat,
    exp.ConcatWs,
    exp.SplitPart,
    exp.StrToDate,
    exp.StrToTime,
    exp.MD5,
)
_TEXT_RESULTS = (
    exp.Substring,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Replace,
    exp.Left,
    exp.Right,
    exp.Reverse,
    exp.RegexpReplace,
    exp.Concat,
    exp.ConcatWs,
    exp.SplitPart,
    exp.MD5,
)
_SOURCE = "rows"
_OPENING = threading.Lock()


@cache
def _database(memory_bytes_max: int) -> Any:
    """One for all loads: opening it costs much, and its limit holds for their sum."""
    connection: Any = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_bytes_max}B",
            "threads": "1",
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
        },
    )
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


# The bindings complain about objects that outlive the interpreter.
atexit.register(_database.cache_clear)


class Engine:
    """Of one load and thread; `close` when done."""

    def __init__(self, memory_bytes_max: int, zone: str) -> None:
        """`zone`: whose clocks instants are shown by."""
        self.zone = zone
        with _OPENING:
            self._cursor: Any = _database(memory_bytes_max).cursor()

    def query(self, sql: str, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """`sql` reads `rows`, whose columns are `c0`, `c1`, …; one array a result column, in order.

        Raises DefinitionError for what does not bind, Unavailable beyond the memory limit.
        """
        table = pa.table(list(columns), names=[f"c{place}" for place in range(len(columns))])
        try:
            self._cursor.register(_SOURCE, table)
            found = self._cursor.sql(sql).to_arrow_table().combine_chunks()
        except duckdb.OutOfMemoryException as error:
            raise Unavailable("the expressions of a load need too much memory", found=_line(error)) from error
        except (duckdb.InternalException, duckdb.FatalException) as error:
            raise Corrupted("the embedded engine failed", found=_line(error)) from error
        except duckdb.Error as error:
            raise DefinitionError("an expression that cannot be computed", found=_line(error)) from error
        finally:
            self._cursor.unregister(_SOURCE)
        return [single_chunk(column) for column in found.columns]

    def close(self) -> None:
        """Again is harmless."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None


class Computed:
    """Expressions over columns of known types; checked when it is made. Raises DefinitionError."""

    def __init__(
        self, engine: Engine, expressions: Mapping[str, Expression], types: Mapping[str, pa.DataType]
    ) -> None:
        """`expressions`: by what they are for, which messages name."""
        self._engine = engine
        needed = sorted({name for expression in expressions.values() for name in expression.names})
        places: dict[str, int] = {}
        for name in needed:
            if name not in types:
                raise DefinitionError(
                    f"an expression uses the unknown column {name}", expected=f"one of {', '.join(types)}"
                )
            places[name] = len(places)
        self._names = tuple(places)
        written = [
            _engine_sql(expression.tree, places, types, engine.zone) for expression in expressions.values()
        ]
        self._sql = f"SELECT {', '.join(f'TRY({one})' for one in written)} FROM {_SOURCE}"
        self._results = tuple(expressions)
        #: of the results
        self.types: dict[str, pa.DataType] = {}
        if written:
            empty = self.run({name: pa.nulls(0, types[name]) for name in self._names}, 0)
            self.types = {name: values.type for name, values in empty.items()}

    def run(self, columns: Mapping[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        if not self._results:
            return {}
        given = [columns[name] for name in self._names] or [pa.nulls(rows)]
        found = [_finite(values) for values in self._engine.query(self._sql, given)]
        return dict(zip(self._results, found, strict=True))


def _finite(values: pa.Array) -> pa.Array:
    """SQL has no NaN: what is none is null."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))


def _engine_sql(
    tree: exp.Expr, places: Mapping[str, int], types: Mapping[str, pa.DataType], zone: str
) -> str:
    tree = exp.Paren(this=tree.copy())
    _unify(tree, types)
    for node in list(tree.find_all(exp.Column)):
        name = str(node.name)
        placed = exp.column(f"c{places[name]}")
        wanted = _wanted(node, pa.types.is_string(types[name]), types)
        node.replace(placed if wanted is None else exp.TryCast(this=placed, to=exp.DataType.build(wanted)))
    for cast in list(tree.find_all(exp.Cast)):
        if not isinstance(cast, exp.TryCast):
            cast.replace(exp.TryCast(this=cast.this, to=cast.to))
    for length in list(tree.find_all(exp.Length)):
        if length.args.get("binary"):  # LENGTH counts bytes, CHAR_LENGTH characters
            length.replace(exp.Anonymous(this="STRLEN", expressions=[length.this]))
    for instant in list(tree.find_all(exp.UnixToTime)):
        written = instant.args.get("format")
        shown = _shown(exp.UnixToTime(this=instant.this), zone)
        instant.replace(shown if written is None else exp.TimeToStr(this=shown, format=written))
    return str(tree.sql(dialect="duckdb"))


def _shown(instant: exp.Expr, zone: str) -> exp.Expr:
    """An instant as the zone's clocks show it."""
    offset = OFFSET.fullmatch(zone)
    if offset is None:
        return exp.AtTimeZone(this=instant, zone=exp.Literal.string(zone))
    minutes = int(f"{offset[1]}{int(offset[2]) * 60 + int(offset[3])}")
    shift = exp.Interval(this=exp.Literal.string(str(minutes)), unit=exp.var("MINUTE"))
    plain = exp.cast(instant, exp.DataType.Type.TIMESTAMP)
    return exp.paren(exp.Add(this=plain, expression=shift), copy=False)


def _wanted(column: exp.Expr, is_text: bool, types: Mapping[str, pa.DataType]) -> str | None:
    """The type that the column's surroundings need; None to leave it."""
    parent = column.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, _TEXTS):
        return None if is_text else "TEXT"
    if not is_text or parent is None:
        return None
    if isinstance(parent, (exp.Add, exp.Sub)) and parent.find(exp.Interval):
        return "TIMESTAMP"
    if isinstance(parent, _NUMERIC):
        return "DOUBLE"
    if isinstance(parent, _COMPARING) and any(
        _is_number(other, types) for other in parent.iter_expressions()
    ):
        return "DOUBLE"
    return "TIMESTAMP" if isinstance(parent, _TIMES) else None


def _unify(tree: exp.Expr, types: Mapping[str, pa.DataType]) -> None:
    """Results become text where one of them is; text becomes a number or an instant where one is needed."""
    for node in list(tree.find_all(exp.Coalesce, exp.If, exp.Case)):
        results = _results(node)
        if any(_is_text(one, types) for one in results):
            for one in results:
                if not _is_text(one, types) and not isinstance(one, exp.Null):
                    one.replace(exp.cast(one.copy(), exp.DataType.Type.TEXT))
    for place in list(tree.find_all(*_NUMERIC, *_TIMES)):
        is_time = isinstance(place, _TIMES)
        both = not is_time or isinstance(place, (exp.DateDiff, exp.TsOrDsDiff))
        for name in ("this", "expression") if both else ("this",):
            operand = place.args.get(name)
            if operand is None or isinstance(operand.unnest(), exp.Column) or not _is_text(operand, types):
                continue
            operand.replace(exp.cast(operand.copy(), "TIMESTAMP" if is_time else "DOUBLE"))


def _results(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    found = [one.args["true"] for one in node.args.get("ifs", ())] if isinstance(node, exp.Case) else []
    found += [node.args.get("true")] if isinstance(node, exp.If) else []
    found += [node.args.get("default"), node.args.get("false")]
    return [one for one in found if one is not None]


def _is_text(node: exp.Expr, types: Mapping[str, pa.DataType]) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return bool(pa.types.is_string(types[str(node.name)]))
    if isinstance(node, exp.Literal):
        return bool(node.is_string)
    if isinstance(node, (exp.Coalesce, exp.If, exp.Case)):
        return any(_is_text(one, types) for one in _results(node))
    return isinstance(node, _TEXT_RESULTS)


def _is_number(node: exp.Expr, types: Mapping[str, pa.DataType]) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return not node.is_string
    if isinstance(node, exp.Column):
        kind = types.get(str(node.name), pa.string())
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    return isinstance(node, _NUMERIC)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
