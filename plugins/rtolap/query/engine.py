"""The embedded engine: what stands above the partial aggregates runs here, in memory, with no way out.

No files, no network, no extensions, no Python objects by name, a locked configuration, a limit on memory. The
database that all statements share holds the macros and is opened read-only: nothing that one of them does is
seen by another. A text runs only after `approval.engine_tree` found in it one SELECT of what is allowed, over
relations that its own session was given.
"""

from __future__ import annotations

import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from duckdb import sqltypes
from duckdb.func import FunctionNullHandling, PythonUDFType
from sqlglot import exp

from rtolap.base.errors import Corrupted, OutOfRange, QueryError, QueryInterrupted, Unavailable, UnknownTable
from rtolap.query import macros
from rtolap.query.approval.engine_tree import EngineTexts
from rtolap.query.dialect import engine_sql
from rtolap.query.engine_calls import StatementCalls
from rtolap.query.function_names import unknown_function
from rtolap.query.sketches import BITMAP_SIZE, HLL_ESTIMATE, bitmap_size, hll_estimate

T = TypeVar("T")

SPILL_FOLDER = ".tmp"  # of the working directory: what does not fit the limit on memory
BATCH_ROWS = 8192  # of a result: bounds what a slow client keeps in memory

_OUT_OF_RANGE = ("Out of Range Error", "value is out of range in")  # as a result's stream says it
_NO_FUNCTION = re.compile(r"Catalog Error: .*Function with name \"?(\w+)\"? does not exist")
_BY_MACROS = "Invalid Input Error: "  # what they call error() with, in our words
_STREAM_ERRORS = (pa.ArrowException, OSError, RuntimeError)  # an engine's errors, seen through Arrow

# The reader of a cursor makes one copy of a batch: bounded by BATCH_ROWS, and the price of bound parameters.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


class Engine:
    """One database for all queries, so that the memory limit holds for their sum."""

    def __init__(self, *, memory_limit_bytes: int, threads: int) -> None:
        self._lock = threading.Lock()
        self._texts = EngineTexts()
        self._connection = _open_read_only(
            {
                "threads": str(threads),
                "temp_directory": SPILL_FOLDER,
                "python_enable_replacements": "false",
                "autoload_known_extensions": "false",
                "autoinstall_known_extensions": "false",
            }
        )
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.create_function(
            HLL_ESTIMATE,
            hll_estimate,
            [duckdb.list_type(sqltypes.BLOB)],
            sqltypes.DOUBLE,
            type=PythonUDFType.ARROW,  # whole columns, not values
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self._connection.create_function(
            BITMAP_SIZE,
            bitmap_size,
            [duckdb.list_type(sqltypes.BLOB)],
            sqltypes.BIGINT,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self._connection.execute(f"SET memory_limit = '{memory_limit_bytes}B'")
        self._connection.execute("SET lock_configuration = true")

    def session(self, calls: StatementCalls | None = None) -> EngineSession:
        """`calls`: of the statement that it is for; without, whoever calls it waits to the end."""
        with self._lock:
            return EngineSession(self._connection.cursor(), self._texts, calls)

    def close(self) -> None:
        self._connection.close()
        self._texts.close()


class EngineSession:
    """One query's own connection: what it registers is seen by nobody else."""

    def __init__(self, cursor: Any, texts: EngineTexts, calls: StatementCalls | None) -> None:
        self._cursor = cursor
        self._texts = texts
        self._calls = calls
        self._relations: set[str] = set()

    def register(self, name: str, table: pa.Table) -> None:
        self._relations.add(name)
        try:
            self._cursor.register(name, table)
        except duckdb.Error as error:  # an interrupt may fall here too
            raise _translated(error) from error

    def fold(self, expression: exp.Expr, parameters: Mapping[str, object]) -> object:
        """The value of a constant expression. LookupError if it holds a parameter without a value."""
        if isinstance(expression, exp.Literal):
            return expression.to_py()
        if isinstance(expression, exp.Parameter):
            return parameters[str(expression.name)]
        needed = {str(node.name) for node in expression.find_all(exp.Parameter)}
        values = {name: parameters[name] for name in needed}
        approved = self._approved(f"SELECT {engine_sql(expression)}")
        try:
            rows = self._call(lambda: self._cursor.execute(approved, values).fetchall())
        except duckdb.Error as error:
            raise _translated(error) from error
        return rows[0][0]

    def run(self, sql: str, parameters: Mapping[str, object]) -> pa.RecordBatchReader:
        values, approved = dict(parameters), self._approved(sql)

        def work() -> pa.RecordBatchReader:
            self._cursor.execute(approved, values)
            reader: pa.RecordBatchReader = self._cursor.to_arrow_reader(BATCH_ROWS)
            return reader

        try:
            return self._call(work)
        except duckdb.Error as error:
            raise _translated(error) from error

    def next_batch(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        """Of a result of `run`; None after the last."""
        try:
            return self._call(lambda: next(reader, None))
        except _STREAM_ERRORS as error:
            raise _translated(error) from error

    def read(self, sql: str, parameters: Mapping[str, object]) -> pa.Table:
        """The whole result, for what is known to be small."""
        reader = self.run(sql, parameters)
        try:
            return self._call(reader.read_all)
        except _STREAM_ERRORS as error:
            raise _translated(error) from error

    def drain(self, reader: pa.RecordBatchReader) -> int:
        """The number of rows of a result that nobody wants to see."""
        try:
            rows: int = self._call(lambda: sum(batch.num_rows for batch in reader))
            return rows
        except _STREAM_ERRORS as error:
            raise _translated(error) from error

    def interrupt(self) -> None:
        self._cursor.interrupt()

    def finish(self, give_back: Callable[[], None]) -> None:
        """Have `give_back` called, which may `close`, as soon as the engine does nothing here any more."""
        if self._calls is None:
            give_back()
        else:
            self._calls.finish(give_back)

    def _approved(self, sql: str) -> str:
        strange = self._texts.approve(sql) - self._relations
        if strange:
            raise UnknownTable("unknown table", found=", ".join(sorted(strange)))
        return sql

    def _call(self, work: Callable[[], T]) -> T:
        return work() if self._calls is None else self._calls.call(work)

    def close(self) -> None:
        self._cursor.close()


def _open_read_only(config: dict[str, str | bool | int | float | list[str]]) -> Any:
    """A database of the macros. Its file has no name any more once it is open; nobody writes to it."""
    with tempfile.TemporaryDirectory(prefix="rtolap-engine-") as folder:
        path = str(Path(folder) / "macros.db")
        with duckdb.connect(path, config={"threads": "1"}) as made:
            made.execute("; ".join(("BEGIN", *macros.statements(), "COMMIT")))
        return duckdb.connect(path, read_only=True, config=config)


def _translated(error: Exception) -> Exception:
    text = str(error).strip()
    text = text.splitlines()[0] if text else type(error).__name__
    if isinstance(error, duckdb.InterruptException) or "INTERRUPT" in text:
        return QueryInterrupted("the query was interrupted")
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in text:
        return Unavailable("the query needs more memory than it may have", found=text, action="group by less")
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return Corrupted("the embedded engine failed", found=text)
    if isinstance(error, duckdb.OutOfRangeException) or any(words in text for words in _OUT_OF_RANGE):
        return OutOfRange(
            f"a value is out of range: {text}",
            expected="integers of 64 bits, decimals of 38 digits, finite doubles",
        )
    unknown = _NO_FUNCTION.match(text)
    if unknown is not None:
        return unknown_function(unknown[1])
    return QueryError(text.removeprefix(_BY_MACROS).replace("__relation_", ""))
