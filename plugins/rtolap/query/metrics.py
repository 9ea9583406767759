"""The Prometheus metrics of a query service: how queries end, how long they take, what they read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Family, Metrics
from rtolap.query.query_log.entries import OK, Ended
from rtolap.query.statement_outcome import StatementOutcome

ABANDONED = "abandoned"  # closed by its reader before its end
_UNEXPECTED = RtolapError.code


class QueryMetrics:
    """`outcome` of a query: OK, ABANDONED, or the code of the error that ended it."""

    def __init__(self) -> None:
        self.registry = Metrics("query")
        counter = self.registry.counter
        self._queries = counter("queries")
        self._seconds = self.registry.histogram("query_seconds")
        self._running = self.registry.gauge("queries_running")
        self._answered = counter("rows_answered")
        self._read = counter("rows_read")
        self._files = counter("history_files_read")
        self._spilled = counter("history_spilled_bytes")
        self._partial = counter("partial_rows")
        self._joined = counter("reads_joined")
        self.logins = counter("mysql_logins")
        self.slow_readers = counter("mysql_slow_readers")

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
            yield self.registry.value("mysql_connections", mysql_connections())
            yield self.registry.value("rewrites", rewrites())
            yield self.registry.value("reads_waiting", reads_waiting())

        self.registry.sampled(sample)

    def follow_budget(self, reserved_bytes: Callable[[], int], refusals: Callable[[], int]) -> None:
        """Sample both functions at each scrape, from any thread."""

        def sample() -> Iterable[Family]:
            yield self.registry.value("user_memory_bytes", reserved_bytes())
            yield self.registry.value("user_memory_refusals", refusals())

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
