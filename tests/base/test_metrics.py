"""The metrics of a service: names, samples taken at each scrape, services apart from each other."""

from __future__ import annotations

import pytest
from rtolap.base.metrics import Metrics

from tests.support.scrape import Scrape


def page(metrics: Metrics) -> Scrape:
    return Scrape(metrics.render()[0].decode())


def test_names_carry_the_service_and_counters_end_in_total() -> None:
    metrics = Metrics("storage")
    metrics.counter("rows", "Rows.", ["table"]).labels("hits").inc(3)
    metrics.gauge("memory_bytes", "Memory.").set(7)
    with metrics.histogram("flush_seconds", "A flush.").time():
        pass
    found = page(metrics)
    assert found("rtolap_storage_rows_total", table="hits") == 3
    assert found("rtolap_storage_memory_bytes") == 7
    assert found("rtolap_storage_flush_seconds_count") == 1
    assert found("process_cpu_seconds_total") > 0


def test_samples_are_taken_at_each_scrape_and_not_before() -> None:
    metrics = Metrics("receiver")
    taken = []

    def sample():  # type: ignore[no-untyped-def]
        taken.append(1)
        family = metrics.counter_family("events", "Events.", ["cube"])
        family.add_metric(["flights"], 10 * len(taken))
        yield family

    metrics.sampled(sample)
    assert not taken
    seen = [page(metrics)("rtolap_receiver_events_total", cube="flights") for _ in range(2)]
    assert seen == [10, 20]


def test_two_services_in_one_process_do_not_meet() -> None:
    first, second = Metrics("query"), Metrics("query")
    first.counter("rows", "Rows.").inc()
    second.counter("rows", "Rows.")
    assert page(first)("rtolap_query_rows_total") == 1
    assert page(second)("rtolap_query_rows_total") == 0


def test_one_name_twice_is_refused() -> None:
    metrics = Metrics("query")
    metrics.counter("rows", "Rows.")
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.counter("rows", "Rows.")
