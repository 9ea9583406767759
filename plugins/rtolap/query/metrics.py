"""The Prometheus metrics of a query service: how queries end, how long they take, what they read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Family, Metrics
from rtolap.query.plan import ReadStats
from rtolap.query.statement_outcome import StatementOutcome

OK = "ok"
ABANDONED = "abandoned"  # closed by its reader before its end
_UNEXPECTED = RtolapError.code


@dataclass
class Ended:
    """A query that has ended.

    Attributes:
        outcome: OK, ABANDONED, or the code of the error that ended it.
        error: the error in words; empty without one.
        rows: that were answered, whose bytes are as they lay in memory.
    """

    outcome: str = OK
    error: str = ""
    took_s: float = 0.0
    rows: int = 0
    result_bytes: int = 0
    reads: list[ReadStats] = field(default_factory=list)


class QueryMetrics:
    """`outcome` of a query: OK, ABANDONED, or the code of the error that ended it."""

    def __init__(self) -> None:
        self.registry = Metrics("query")
        self._queries = self.registry.counter("queries", "Queries that have ended.", ("outcome",))
        self._seconds = self.registry.histogram(
            "query_seconds", "A query, from its text to its last row read or its error."
        )
        self._running = self.registry.gauge("queries_running", "Queries whose rows are not all read yet.")
        self._answered = self.registry.counter("rows_answered", "Rows that queries answered.")
        self._read = self.registry.counter("rows_read", "Rows of history that were read.", ("cube",))
        self._files = self.registry.counter(
            "history_files_read", "Files of history that were read, by where they were.", ("source",)
        )
        self._spilled = self.registry.counter(
            "history_spilled_bytes",
            "Bytes of partial rows of history that were written to the disk.",
            ("cube",),
        )
        self._partial = self.registry.counter(
            "partial_rows", "Partial aggregates that receivers answered.", ("cube",)
        )
        self._joined = self.registry.counter(
            "reads_joined", "Reads of cubes that an equal statement made for more than itself.", ("cube",)
        )
        self.logins = self.registry.counter(
            "mysql_logins", "MySQL connections by what became of their login.", ("outcome",)
        )
        self.slow_readers = self.registry.counter(
            "mysql_slow_readers", "MySQL connections that were cut off because they did not read."
        )

    def measure(
        self, execute: Callable[[], StatementOutcome], note: Callable[[Ended], None] = lambda ended: None
    ) -> StatementOutcome:
        """Return the outcome of `execute`, measured until its rows are read, it is closed, or it fails.
        `note` is called then."""
        measured = _Measured(self, note)
        try:
            outcome = execute()
        except BaseException as error:
            measured.end(_code(error), str(error))
            raise
        measured.ended.reads = outcome.stats
        for stats in outcome.stats:
            if not stats.is_own:  # counted with the statement that has made the read
                self._joined.labels(stats.cube).inc()
                continue
            self._read.labels(stats.cube).inc(stats.rows_read)
            self._files.labels("cache").inc(stats.files_cached)
            self._files.labels("store").inc(stats.files_remote)
            self._spilled.labels(stats.cube).inc(stats.spilled_bytes)
            self._partial.labels(stats.cube).inc(stats.partial_rows)
        return replace(outcome, batches=_MeasuredBatches(outcome, measured))

    def follow(
        self,
        mysql_connections: Callable[[], int],
        rewrites: Callable[[], int],
        reads_waiting: Callable[[], int],
    ) -> None:
        """Sample these functions at each scrape, from any thread."""

        def sample() -> Iterable[Family]:
            connections = self.registry.gauge_family("mysql_connections", "Open MySQL connections.")
            connections.add_metric((), mysql_connections())
            yield connections
            rewritten = self.registry.counter_family(
                "rewrites", "Statements that were not known as they had been rewritten before."
            )
            rewritten.add_metric((), rewrites())
            yield rewritten
            waiting = self.registry.gauge_family(
                "reads_waiting", "Statements that wait while an equal one reads."
            )
            waiting.add_metric((), reads_waiting())
            yield waiting

        self.registry.sampled(sample)

    def follow_budget(self, reserved_bytes: Callable[[], int], refusals: Callable[[], int]) -> None:
        """Sample both functions at each scrape, from any thread."""

        def sample() -> Iterable[Family]:
            reserved = self.registry.gauge_family(
                "user_memory_bytes", "Memory of the service that users have reserved."
            )
            reserved.add_metric((), reserved_bytes())
            yield reserved
            refused = self.registry.counter_family(
                "user_memory_refusals", "What was refused because a user would have had too much memory."
            )
            refused.add_metric((), refusals())
            yield refused

        self.registry.sampled(sample)

    def begun(self) -> None:
        self._running.inc()

    def answered(self, rows: int) -> None:
        self._answered.inc(rows)

    def ended(self, outcome: str, took_s: float) -> None:
        self._running.dec()
        self._queries.labels(outcome).inc()
        self._seconds.observe(took_s)


class _Measured:
    """A measured query; only the first `end` counts."""

    def __init__(self, metrics: QueryMetrics, note: Callable[[Ended], None]) -> None:
        self.ended = Ended()
        self._metrics = metrics
        self._note = note
        self._began_s = time.perf_counter()
        self._open = True
        metrics.begun()

    def answered(self, batch: pa.RecordBatch) -> None:
        self._metrics.answered(batch.num_rows)
        self.ended.rows += batch.num_rows
        self.ended.result_bytes += batch.nbytes

    def end(self, outcome: str, error: str = "") -> None:
        if self._open:
            self._open = False
            ended = self.ended
            ended.outcome, ended.error = outcome, error
            ended.took_s = time.perf_counter() - self._began_s
            self._metrics.ended(outcome, ended.took_s)
            self._note(ended)


class _MeasuredBatches(Iterator[pa.RecordBatch]):
    """The batches of an outcome as they come; who drops them has abandoned the query."""

    def __init__(self, outcome: StatementOutcome, measured: _Measured) -> None:
        self._outcome = outcome
        self._measured = measured

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._outcome.batches)
        except StopIteration:
            self._measured.end(OK)
            raise
        except BaseException as error:
            self._measured.end(_code(error), str(error))
            raise
        self._measured.answered(batch)
        return batch

    def close(self) -> None:
        self._outcome.close()
        self._measured.end(ABANDONED)

    def __del__(self) -> None:
        self.close()


def _code(error: BaseException) -> str:
    return error.code if isinstance(error, RtolapError) else _UNEXPECTED
