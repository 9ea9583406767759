"""Spans of a process that was started for a request are below the one that was open: over drawn chains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from rtolap.base import spans
from rtolap.base.ids import bound

from tests.support.telemetry.receivers import Messages, Received
from tests.support.waiting import patience_s, until

# A Spark driver as far as spans go: it may start another process for the same request.
CHILD = """
import subprocess, sys
from rtolap.base.spans import handed_over, span
from rtolap.cubes.build.job_ids import job_of_parent
import os
left = int(sys.argv[2])
with job_of_parent(), span(f"job {left}"):
    if left:
        words = [sys.executable, "-c", sys.argv[1], sys.argv[1], str(left - 1)]
        subprocess.run(words, env={**os.environ, **handed_over()}, check=True)
"""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Messages]:
    with closing(Messages(tmp_path)) as made:
        yield made


def run(receiver: Messages, left: int, handed: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, CHILD, str(left)],
        env={**os.environ, spans.ENDPOINT: receiver.endpoint, **handed},
        capture_output=True,
        text=True,
        timeout=patience_s(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_chain_of_processes_is_one_trace(receiver: Messages) -> None:
    spans.use(TracerProvider())
    try:
        with bound(build="b-1"), spans.span("asking") as opened:
            handed = spans.handed_over()
            context = opened.get_span_context()
            run(receiver, 2, handed)
    finally:
        spans.use(None)
    trace, above = format(context.trace_id, "032x"), format(context.span_id, "016x")
    until(lambda: len(receiver.spans()) == 3, lambda: str(receiver.spans()))
    found = {span.name: span for span in receiver.spans()}
    for name in ("job 2", "job 1", "job 0"):
        span = found[name]
        assert (span.trace, span.parent, span.service) == (trace, above, "rtolap-spark")
        assert span.attributes["rtolap.build"] == "b-1"
        above = span.span


@pytest.mark.parametrize("parent", ["", "nonsense", f"00-{'0' * 32}-{'0' * 16}-01", "00-zz-zz-zz"])
def test_a_parent_that_is_none_begins_a_trace(receiver: Messages, parent: str) -> None:
    run(receiver, 0, {spans.VARIABLE: parent})
    until(lambda: len(receiver.spans()) == 1, lambda: str(receiver.spans()))
    (span,) = receiver.spans()
    assert isinstance(span, Received)
    assert span.parent == ""


def test_nothing_is_handed_over_where_spans_are_off() -> None:
    spans.use(None)
    assert spans.handed_over() == {}
    with bound(build="b"), spans.under("00-nonsense"), spans.span("x"):
        spans.measured("y", 5, error="z", number=1)
        assert spans.handed_over() == {"RTOLAP_IDS": "build=b"}
