"""The metrics of a service: names, samples taken at each scrape, services apart from each other."""

from __future__ import annotations

import pytest
from rtolap.base.metric_catalogue import MetricRow
from rtolap.base.metrics import Metrics

from tests.support.scrape import Scrape

ROWS = (
    MetricRow("rows", "counter", "Rows.", ("table",)),
    MetricRow("memory_bytes", "gauge", "Memory."),
    MetricRow("flush_seconds", "histogram", "A flush."),
)


def page(metrics: Metrics) -> Scrape:
    return Scrape(metrics.render()[0].decode())


def test_names_carry_the_service_and_counters_end_in_total() -> None:
    metrics = Metrics("storage", ROWS)
    metrics.counter("rows").labels("hits").inc(3)
    metrics.gauge("memory_bytes").set(7)
    with metrics.histogram("flush_seconds").time():
        pass
    found = page(metrics)
    assert found("rtolap_storage_rows_total", table="hits") == 3
    assert found("rtolap_storage_memory_bytes") == 7
    assert found("rtolap_storage_flush_seconds_count") == 1
    assert found("process_cpu_seconds_total") > 0


def test_samples_are_taken_at_each_scrape_and_not_before() -> None:
    metrics = Metrics("receiver", ROWS)
    taken = []

    def sample():  # type: ignore[no-untyped-def]
        taken.append(1)
        yield metrics.family("rows", [(("hits",), 10 * len(taken))])

    metrics.sampled(sample)
    assert not taken
    seen = [page(metrics)("rtolap_receiver_rows_total", table="hits") for _ in range(2)]
    assert seen == [10, 20]


def test_two_services_in_one_process_do_not_meet() -> None:
    first, second = Metrics("query", ROWS), Metrics("query", ROWS)
    first.counter("rows").labels("hits").inc()
    second.counter("rows").labels("hits")
    assert page(first)("rtolap_query_rows_total", table="hits") == 1
    assert page(second)("rtolap_query_rows_total", table="hits") == 0


def test_one_name_twice_is_refused() -> None:
    metrics = Metrics("query", ROWS)
    metrics.counter("rows")
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.counter("rows")
