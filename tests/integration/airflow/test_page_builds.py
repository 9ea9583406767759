"""A Spark build in a browser while it runs: its stages and tasks, and where its log is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from rtolap.airflow.operators.build_batch import PROGRESS_MARK
from rtolap.airflow.page.builds import progress_in

from tests.integration.airflow.browsing import picture, serious_in
from tests.integration.airflow.conftest import BUILD, Say
from tests.support.airflow_stack import held_python_of

pytestmark = pytest.mark.integration

DAEMONS_MAX = 64  # of one build, with its retries


@pytest.fixture
def release(airflow: Any) -> Iterator[Callable[[], None]]:
    """Lets Spark's tasks run. Until then their interpreter, `held_python_of`, waits before it starts."""
    python = held_python_of(airflow.around.layout.root)
    gate = python.with_suffix(".gate")
    os.mkfifo(gate)
    opened = os.open(gate, os.O_RDWR)  # who reads waits for a line, and reads the end once this is closed
    holds = f'case "$*" in *pyspark.daemon*) read -r line < "{gate}";; esac'
    python.write_text(f'#!/bin/sh\n{holds}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    yield lambda: _write(opened)
    os.close(opened)
    Path(gate).unlink()


def _write(gate: int) -> None:
    assert os.write(gate, b"\n" * DAEMONS_MAX) == DAEMONS_MAX


def test_stages_and_tasks_of_a_build_are_seen_while_it_runs(
    sign_in: Callable[..., Page], stream: Any, airflow: Any, say: Say, release: Callable[[], None]
) -> None:
    """Tasks run Python of ours, because the connection takes every segment for a large one."""
    stream.send(1, 2)

    def is_now(state: str) -> Any:
        info = stream.segments().get(1)
        return info if info is not None and info.state == state else None

    airflow.until("REMOTE_PERSISTED segment", lambda: is_now("REMOTE_PERSISTED"))
    python = str(held_python_of(airflow.around.layout.root))
    conf = {"spark.rtolap.rowsInMemoryMax": "0", "spark.pyspark.python": python}
    say("spark_default", conn_type="spark", host="local[2]", extra={"conf": conf})
    run_id, key = airflow.trigger(BUILD), f"build.{stream.name}"

    airflow.until_running(key)
    page = sign_in("viewer", f"?view=cubes&cube={stream.name}")
    row = page.get_by_role("table", name="Spark processes").get_by_role("row", name=re.compile("^build"))
    (started_at, stages_at, tasks_at) = (2, 6, 7)
    expect(row.get_by_role("cell").nth(stages_at)).to_have_text(re.compile(r"^0 of [1-9]\d*$"))
    expect(row.get_by_role("cell").nth(tasks_at)).to_have_text(re.compile(r"^0 of [1-9]\d*$"))
    expect(row).to_contain_text("RUNNING")
    expect(row).to_contain_text("inputs are verified")
    expect(row.get_by_role("cell").nth(started_at)).not_to_be_empty()
    stages = progress_in(airflow.agent.log(key, 1 << 18)).stages
    assert stages is not None
    shown = [row.get_by_role("cell").nth(at).inner_text() for at in (stages_at, tasks_at)]
    assert shown == [f"0 of {stages.stages}", f"0 of {stages.tasks}"]
    together = page.get_by_role("table", name="Segments that are built together")
    expect(together.get_by_role("row", name=re.compile(f"^{stream.segment(1)} 1 waits"))).to_be_visible()
    assert serious_in(page) == []
    picture(page, "build-runs")
    row.get_by_role("link", name="Log").click()
    expect(page.get_by_text(PROGRESS_MARK).first).to_be_visible()
    page.go_back()
    expect(row).to_contain_text("RUNNING")
    assert is_now("REMOTE_PERSISTED")

    release()
    airflow.until("it is built", lambda: is_now("READY"), 300.0)
    airflow.until_run(BUILD, run_id)
    expect(row).not_to_contain_text("RUNNING")
    expect(page.get_by_role("img", name=re.compile("1 READY"))).to_be_visible()
    assert airflow.until("whole answer", stream.answer) == stream.recount()
