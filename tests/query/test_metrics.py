"""How queries are counted, however they end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryTimeout
from rtolap.query.metrics import QueryMetrics
from rtolap.query.plan import ReadStats
from rtolap.query.statement_outcome import StatementOutcome

from tests.support.scrape import Scrape

TABLE = pa.table({"a": [1, 2, 3, 4]})


def page(metrics: QueryMetrics) -> Scrape:
    return Scrape(metrics.registry.render()[0].decode())


def outcome(error: Exception | None = None) -> StatementOutcome:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=2)
        if error is not None:
            raise error

    return StatementOutcome(TABLE.schema, batches(), [ReadStats("flights", rows_read=70, partial_rows=4)])


def ends(metrics: QueryMetrics) -> dict[str, float]:
    found = page(metrics)
    name = "rtolap_query_queries_total"
    return {outcome: found(name, outcome=outcome) for outcome in found.labels(name, "outcome")}


def test_a_query_runs_until_its_last_row_is_read() -> None:
    metrics = QueryMetrics()
    running = metrics.measure(outcome)
    assert page(metrics)("rtolap_query_queries_running") == 1
    assert running.table() == TABLE
    running.close()
    found = page(metrics)
    assert ends(metrics) == {"ok": 1}
    assert found("rtolap_query_queries_running") == 0
    assert found("rtolap_query_rows_answered_total") == 4
    assert found("rtolap_query_rows_read_total", cube="flights") == 70
    assert found("rtolap_query_partial_rows_total", cube="flights") == 4
    assert found("rtolap_query_query_seconds_count") == 1


@pytest.mark.parametrize("error", [QueryTimeout("too long"), ZeroDivisionError("a bug")])
def test_errors_count_by_their_code_whenever_they_come(error: Exception) -> None:
    metrics = QueryMetrics()

    def fails() -> StatementOutcome:
        raise error

    with pytest.raises(type(error)):
        metrics.measure(fails)
    with pytest.raises(type(error)):
        metrics.measure(lambda: outcome(error)).table()
    assert ends(metrics) == {getattr(error, "code", "error"): 2}
    assert page(metrics)("rtolap_query_queries_running") == 0


def test_a_query_that_nobody_reads_to_its_end_is_abandoned() -> None:
    metrics = QueryMetrics()
    closed = metrics.measure(outcome)
    next(closed.batches)
    closed.close()
    dropped = metrics.measure(outcome)
    del dropped
    assert ends(metrics) == {"abandoned": 2}
    assert page(metrics)("rtolap_query_queries_running") == 0


def test_a_read_that_several_share_counts_once() -> None:
    metrics = QueryMetrics()
    for is_own in (True, False, False):
        shared = ReadStats("flights", rows_read=70, partial_rows=4, statements=3, is_own=is_own)
        metrics.measure(lambda: StatementOutcome(TABLE.schema, iter(TABLE.to_batches()), [shared])).table()  # noqa: B023
    found = page(metrics)
    assert found("rtolap_query_rows_read_total", cube="flights") == 70
    assert found("rtolap_query_partial_rows_total", cube="flights") == 4
    assert found("rtolap_query_reads_joined_total", cube="flights") == 2
    assert found("rtolap_query_rows_answered_total") == 12
    assert ends(metrics) == {"ok": 3}
