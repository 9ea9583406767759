"""The embedded engine runs everything above the partial aggregates, in memory, with no way out.

No files, no network, no extensions, no Python objects by name, a locked configuration, a limit on memory. The
database that all statements share holds the macros and is opened read-only: nothing that one of them does is
seen by another. A text runs only after `approval.engine_tree` found in it one SELECT of what is allowed, over
relations that its own session was given.
"""

from __future__ import annotations

import functools
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import sqltypes
from duckdb.func import FunctionNullHandling, PythonUDFType

from rtolap.aggregates.approx_percentile import KLL_QUANTILE
from rtolap.aggregates.approx_top_k import TOP_K_JSON
from rtolap.aggregates.by_time import PICKED_TEXT
from rtolap.aggregates.count_distinct import DISTINCT_SIZE
from rtolap.aggregates.group_concat import JOINED_TEXTS, TEXTS_ARE_CUT
from rtolap.aggregates.sketch_bytes import FREQUENT_ITEMS_BYTES, HLL_BYTES, KLL_BYTES
from rtolap.aggregates.variance import DEVIATION
from rtolap.base.errors import QueryInterrupted, UnknownTable
from rtolap.query.approval.engine_tree import EngineTexts
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine_errors import moment_out_of_range, translated
from rtolap.query.engine_functions.checksums import CRC32, crc32
from rtolap.query.engine_functions.exact_variance import exact_variance
from rtolap.query.engine_functions.joined_texts import joined_texts, texts_are_cut
from rtolap.query.engine_functions.picked import picked_text
from rtolap.query.engine_functions.quantiles import kll_quantile
from rtolap.query.engine_functions.sketch_bytes import frequent_items_bytes, hll_bytes, kll_bytes
from rtolap.query.engine_functions.sketches import BITMAP_SIZE, HLL_ESTIMATE, bitmap_size, hll_estimate
from rtolap.query.engine_functions.top_k import top_k_json
from rtolap.query.engine_functions.value_sets import distinct_size
from rtolap.query.engine_session import BATCH_ROWS, EngineSession, EngineSessions
from rtolap.query.macros import registry as macros
from rtolap.query.plan import Planned
from rtolap.query.relation_rows import RelationRows, RowsInMemory
from rtolap.query.spills.tables import SpilledTable
from rtolap.query.sql.planner import SqlPlanner
from rtolap.query.sql.statement import SqlStatement

Config = dict[str, str | bool | int | float | list[str]]

SPILL_FOLDER = ".tmp"  # of the working directory: what does not fit the limit on memory

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_ERRORS = (duckdb.Error, MemoryError, OverflowError)  # the last of a moment that Python has not
# Of the years that clients read, in days since 1970; the second is one too many.
_FIRST_DAY, _END_DAY = date(1, 1, 1).toordinal() - _EPOCH_DAY, date(9999, 12, 31).toordinal() + 1 - _EPOCH_DAY
_UNITS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}  # in nanoseconds there are no others
_STREAM_ERRORS = (*_ERRORS, pa.ArrowException, OSError, RuntimeError)  # as they are seen through Arrow

# The reader of a cursor makes one copy of a batch: bounded by BATCH_ROWS, and the price of bound parameters.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


class EmbeddedEngine(EngineSessions):
    """A database of the engine.

    Its memory limit holds for the sum of its sessions, but not for texts, which are made outside of it. The
    service therefore has its engines in processes that the system bounds (`workers`).
    """

    def __init__(
        self,
        *,
        memory_limit_bytes: int,
        threads: int,
        database: str | None = None,
        spill_folder: str = SPILL_FOLDER,
    ) -> None:
        """Open a database.

        Args:
            database: a file of `made_database`, which the caller removes; None: the engine makes its own.
        """
        self._lock = threading.Lock()
        config: Config = {
            "threads": str(threads),
            "temp_directory": spill_folder,
            "python_enable_replacements": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
        }
        self._connection = _open_read_only(config) if database is None else _opened(database, config)
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, function, arguments, result in _column_functions():
            self._connection.create_function(
                name,
                function,
                arguments,
                result,
                type=PythonUDFType.ARROW,  # whole columns, not values
                null_handling=FunctionNullHandling.SPECIAL,
            )
        self._texts = EngineTexts(self._connection.cursor())
        self._planner = SqlPlanner()
        self._connection.execute(f"SET memory_limit = '{memory_limit_bytes}B'")
        self._connection.execute("SET lock_configuration = true")

    def session(self, ending: Cancellation | None = None) -> EmbeddedSession:
        """Return a new session. Its owner interrupts it, so `ending` is not used."""
        with self._lock:
            return EmbeddedSession(self._connection.cursor(), self._texts, self._planner)

    def close(self) -> None:
        self._texts.close()
        self._connection.close()


def _column_functions() -> Iterator[tuple[str, Callable[..., Any], list[Any], Any]]:
    """Give the functions over whole columns: name, function, types of arguments, type of the result."""
    images = duckdb.list_type(sqltypes.BLOB)
    whole = duckdb.decimal_type(38, 0)
    yield HLL_ESTIMATE, hll_estimate, [images], sqltypes.DOUBLE
    yield BITMAP_SIZE, bitmap_size, [images], sqltypes.BIGINT
    yield DISTINCT_SIZE, distinct_size, [images], sqltypes.BIGINT
    yield CRC32, crc32, [sqltypes.BLOB], sqltypes.BIGINT
    of_squares = [sqltypes.BIGINT, sqltypes.VARCHAR, whole, whole, sqltypes.BIGINT]
    yield DEVIATION, exact_variance, of_squares, sqltypes.DOUBLE
    yield KLL_QUANTILE, kll_quantile, [images, sqltypes.DOUBLE], sqltypes.DOUBLE
    yield TOP_K_JSON, top_k_json, [images, sqltypes.BIGINT], sqltypes.VARCHAR
    yield HLL_BYTES, hll_bytes, [images], sqltypes.BLOB
    yield KLL_BYTES, kll_bytes, [images], sqltypes.BLOB
    yield FREQUENT_ITEMS_BYTES, frequent_items_bytes, [images], sqltypes.BLOB
    yield JOINED_TEXTS, joined_texts, [images, sqltypes.VARCHAR], sqltypes.VARCHAR
    yield TEXTS_ARE_CUT, texts_are_cut, [images], sqltypes.BOOLEAN
    yield PICKED_TEXT, picked_text, [sqltypes.BLOB], sqltypes.VARCHAR


class EmbeddedSession(EngineSession):
    """A connection for a single query. Other queries do not see what it registers."""

    def __init__(self, cursor: Any, texts: EngineTexts, planner: SqlPlanner) -> None:
        self._cursor = cursor
        self._texts = texts
        self._planner = planner
        self._is_interrupted = False
        self._working = threading.RLock()  # a connection does one thing at a time, and then is closed
        self._relations: set[str] = set()

    def register(self, name: str, table: pa.Table | SpilledTable) -> None:
        self._relations.add(name)
        with self._working, _translated_errors():  # an interrupt may fall here too
            self._cursor.register(name, table.mapped() if isinstance(table, SpilledTable) else table)

    def rows_of(self, name: str, schema: pa.Schema) -> RelationRows:
        return RowsInMemory(schema, functools.partial(self.register, name))

    def value(self, sql: str, parameters: Mapping[str, object]) -> object:
        approved = self._approved(sql)
        with self._working, _translated_errors():
            return self._cursor.execute(approved, dict(parameters)).fetchall()[0][0]

    def run(self, sql: str, parameters: Mapping[str, object]) -> EmbeddedResult:
        approved = self._approved(sql)
        with self._working, _translated_errors():
            self._cursor.execute(approved, dict(parameters))
            return EmbeddedResult(self._cursor.to_arrow_reader(BATCH_ROWS), self._working)

    def read_statement(self, text: str, database: str | None) -> SqlStatement:
        return self._planner.read(text, database)

    def plan(
        self, statement: SqlStatement, values: Mapping[str, object], catalogue: QueryCatalogue
    ) -> Planned:
        return self._planner.plan(statement, values, catalogue, self.value, self._check)

    def show_filter(self, condition: str, first: str) -> str:
        return self._planner.shown(condition, first)

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._cursor.interrupt()

    def _check(self) -> None:
        if self._is_interrupted:
            raise QueryInterrupted("the query was interrupted")

    def _approved(self, sql: str) -> str:
        strange = self._texts.approve(sql) - self._relations
        if strange:
            raise UnknownTable("unknown table", found=", ".join(sorted(strange)))
        return sql

    def close(self) -> None:
        self._planner.statement_is_over()
        with self._working:
            self._cursor.close()


class EmbeddedResult:
    """See `engine_session.EngineResult`."""

    def __init__(self, reader: pa.RecordBatchReader, working: Any) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._working = working

    def next_batch(self) -> pa.RecordBatch | None:
        with self._working, _translated_errors(_STREAM_ERRORS):
            batch = next(self._reader, None)
        if batch is not None:
            _check_moments(batch)
        return batch

    def drain(self) -> int:
        with self._working, _translated_errors(_STREAM_ERRORS):
            return sum(batch.num_rows for batch in self._reader)


def made_database(path: Path) -> None:
    """Return a database of the macros, which is opened read-only."""
    path.write_bytes(_macros_database())


@functools.cache
def _macros_database() -> bytes:
    """Return the file, some hundreds of KB; it is made once per process."""
    with tempfile.TemporaryDirectory(prefix="rtolap-macros-") as folder:
        path = Path(folder) / "macros.db"
        with duckdb.connect(str(path), config={"threads": "1"}) as made:
            made.execute("; ".join(("BEGIN", *macros.statements(), "COMMIT")))
        return path.read_bytes()


def _open_read_only(config: Config) -> Any:
    """Open the database read-only. Its file has no name any more once it is open, and nothing writes to
    it."""
    with tempfile.TemporaryDirectory(prefix="rtolap-engine-") as folder:
        path = Path(folder) / "macros.db"
        made_database(path)
        return _opened(str(path), config)


def _opened(path: str, config: Config) -> Any:
    return duckdb.connect(path, read_only=True, config=config)


def _check_moments(batch: pa.RecordBatch) -> None:
    """Raise OutOfRange for a moment that no client can read, wherever it comes from."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        units_a_day = 1 if pa.types.is_date32(field.type) else None
        if pa.types.is_timestamp(field.type):
            units_a_day = _UNITS_A_DAY.get(field.type.unit)
        if units_a_day is None:
            continue
        first, last = (bound.value for bound in pc.min_max(column).values())
        if first is not None and (first < _FIRST_DAY * units_a_day or last >= _END_DAY * units_a_day):
            raise moment_out_of_range(field.name)


@contextmanager
def _translated_errors(kinds: tuple[type[Exception], ...] = _ERRORS) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        raise translated(error) from error
