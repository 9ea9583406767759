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

from rtolap.base.errors import Corrupted, DefinitionError, Unavailable
from rtolap.columnar.chunks import single_chunk
from rtolap.stored.bodies.clauses import Expression
from rtolap.stored.bodies.engine_sql import engine_sql

_SOURCE = "rows"
_OPENING = threading.Lock()


@cache
def _database(memory_bytes_max: int) -> Any:
    """Return the one engine of all loads: opening it costs much, and its limit holds for their sum."""
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
    """The expression engine of one load and thread; `close` when done."""

    def __init__(self, memory_bytes_max: int, zone: str) -> None:
        """Show instants by the clocks of `zone`."""
        self.zone = zone
        with _OPENING:
            self._cursor: Any = _database(memory_bytes_max).cursor()

    def query(self, sql: str, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Run `sql`, which reads `rows` with the columns `c0`, `c1`, …; return one array a result column, in
        order.

        Raises DefinitionError for what does not bind, Unavailable beyond the memory limit.
        """
        table = pa.table(list(columns), names=[f"c{place}" for place in range(len(columns))])
        try:
            self._cursor.register(_SOURCE, table)
            results = self._cursor.sql(self._one_select(sql)).to_arrow_table().combine_chunks()
        except duckdb.OutOfMemoryException as error:
            raise Unavailable("the expressions of a load need too much memory", found=_line(error)) from error
        except (duckdb.InternalException, duckdb.FatalException) as error:
            raise Corrupted("the embedded engine failed", found=_line(error)) from error
        except duckdb.Error as error:
            raise DefinitionError("an expression that cannot be computed", found=_line(error)) from error
        finally:
            self._cursor.unregister(_SOURCE)
        return [single_chunk(column) for column in results.columns]

    def _one_select(self, sql: str) -> Any:
        """Return the engine's own reading of it: whatever else the words were taken for, nothing else is
        run.
        """
        statements = self._cursor.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise DefinitionError("an expression that does more than to compute", found=repr(sql))
        return statements[0]

    def close(self) -> None:
        """Close the cursor. A repetition is harmless."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None


class Computed:
    """Expressions over columns of known types; checked when it is made. Raises DefinitionError."""

    def __init__(
        self, engine: Engine, expressions: Mapping[str, Expression], types: Mapping[str, pa.DataType]
    ) -> None:
        """Take `expressions` by what they are for, which messages name."""
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
            engine_sql(expression.tree, places, types, engine.zone) for expression in expressions.values()
        ]
        self._sql = f"SELECT {', '.join(f'TRY({text})' for text in written)} FROM {_SOURCE}"
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
        results = [_finite(values) for values in self._engine.query(self._sql, given)]
        return dict(zip(self._results, results, strict=True))


def _finite(values: pa.Array) -> pa.Array:
    """Return values in which NaN is null, since SQL has no NaN."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
