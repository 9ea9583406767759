"""What a worker has done is a span below that of its statement, whatever it says and however it ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from rtolap.base import spans
from rtolap.base.errors import RtolapError
from rtolap.base.ids import bound
from rtolap.query.statement_service import QueryLimits, QueryService
from rtolap.query.workers import session
from rtolap.query.workers import worker as workers
from rtolap.query.workers.messages import ReceivedAnswer

from tests.query.test_workers import GREEDY, LITTLE_BYTES
from tests.support.cubes.flights import flights_world

STATEMENTS = {
    "rows": "select carrier, count(*) from flights group by carrier",
    "refused": "select nobody from flights",
    "memory": GREEDY["nested REPLACE"],
    "constant": "select 1",
}


@pytest.fixture(scope="module")
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.use(provider)
    yield exporter
    spans.use(None)


@pytest.fixture(scope="module")
def service() -> Iterator[QueryService]:
    world = flights_world(7, 200)
    made = world.service(QueryLimits(memory_bytes=LITTLE_BYTES), in_workers=True)
    yield made
    made.close()
    world.close()


def asked(service: QueryService, exported: InMemorySpanExporter, sql: str) -> list[ReadableSpan]:
    """Return the spans of a statement, its own first."""
    exported.clear()
    with bound(statement="s-1"), suppress(RtolapError):
        service.execute(sql).table()
    found = list(exported.get_finished_spans())
    (own,) = [each for each in found if each.name == "statement"]
    return [own, *(each for each in found if each is not own)]


def assert_below(own: ReadableSpan, each: ReadableSpan) -> None:
    assert own.context is not None
    assert each.parent is not None
    assert each.parent.span_id == own.context.span_id
    assert (own.start_time or 0) <= (each.start_time or 0) <= (each.end_time or 0)
    assert (each.attributes or {})["rtolap.statement"] == "s-1"
    assert (each.attributes or {})["process.pid"]


def test_spans_of_workers_are_below_those_of_drawn_statements(
    service: QueryService, exported: InMemorySpanExporter
) -> None:
    rng = random.Random(86)
    for kind in (*STATEMENTS, *rng.choices(sorted(STATEMENTS), k=8)):
        own, *others = asked(service, exported, f"{STATEMENTS[kind]} /* {rng.random()} */")
        of_worker = [each for each in others if each.name.startswith("worker ")]
        assert of_worker, kind
        for each in of_worker:
            assert_below(own, each)
        failed = [each for each in of_worker if each.status.status_code is StatusCode.ERROR]
        assert bool(failed) is (kind in ("refused", "memory")), kind
        for each in failed:  # the kind of error alone: its text may have values of the statement
            assert each.status.description
            assert each.status.description.isidentifier()


def test_a_long_statement_is_no_long_list_of_spans(
    service: QueryService, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> int:
        _, *others = asked(service, exported, f"{STATEMENTS['rows']} /* {random.random()} */")
        return sum(each.name.startswith("worker ") for each in others)

    assert made() >= 2
    monkeypatch.setattr(session, "SPANS_MAX", 0)
    assert made() == 0


def test_a_worker_that_lies_about_its_time_lengthens_no_span(
    service: QueryService, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = workers.Worker._received

    def lying(of: workers.Worker) -> ReceivedAnswer:
        return received(of)._replace(worked_ns=1 << 62)

    monkeypatch.setattr(workers.Worker, "_received", lying)
    own, *others = asked(service, exported, STATEMENTS["rows"])
    of_worker = [each for each in others if each.name.startswith("worker ")]
    assert of_worker
    for each in of_worker:
        assert_below(own, each)
