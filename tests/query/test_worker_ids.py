"""Worker processes of statements write the service's log, with the ids of the statement that they run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.ids import bound
from rtolap.base.logs import JsonLines
from rtolap.base.metrics import Metrics
from rtolap.query.cancel import Cancellation, Timeouts
from rtolap.query.workers.pool import WorkerPool

from tests.support.telemetry.log_lines import json_lines
from tests.support.waiting import until

MEMORY_BYTES = 64 << 20
STATEMENTS: tuple[dict[str, str], ...] = (
    {},
    {"statement": "s-1", "trace": "t-1"},
    {"statement": "s-2", "trace": "t-2"},
)


@pytest.fixture
def json_log() -> Iterator[None]:
    """Have this process write its log as a service does that is asked for JSON and every line."""
    root, handler = logging.getLogger(), logging.StreamHandler()
    level = root.level
    handler.setFormatter(JsonLines())
    root.addHandler(handler)
    root.setLevel("DEBUG")
    yield
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.usefixtures("json_log")
def test_each_statement_has_its_own_ids_in_the_log_of_one_worker(
    capfd: pytest.CaptureFixture[str],
) -> None:
    written: list[str] = []

    def said() -> list[dict[str, str]]:
        written.append(capfd.readouterr().err)
        return [
            line for line in json_lines("".join(written)) if line["logger"] == "rtolap.query.workers.process"
        ]

    pool = WorkerPool(MEMORY_BYTES, 1, 1, Metrics("query"), warm=1)
    timeouts = Timeouts(SystemClock())
    try:
        for statement in STATEMENTS:
            ending = Cancellation(timeouts, 120_000)
            with bound(statement), pool.session(ending) as session:
                assert session.value("select 1", {}) == 1
                assert session.run("select 2 as x", {}).drain() == 1
            ending.close()
        until(lambda: len(said()) == 2 * len(STATEMENTS), "the worker says what it has answered")
    finally:
        pool.close()
        timeouts.close()
    found = [(line["message"].split()[0], line.get("statement"), line.get("trace")) for line in said()]
    assert found == [
        (request, statement.get("statement"), statement.get("trace"))
        for statement in STATEMENTS
        for request in ("ReadValue", "Run")
    ]
