"""The demonstration as a user starts it: a whole stack with Airflow, real flights, every answer recounted."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest
from rtolap.demo.recount import QUERIES
from rtolap.stack.layout import StackLayout
from rtolap.stack.together import marked_processes

from tests.support.demonstrated import Demonstrated

pytestmark = [pytest.mark.integration, pytest.mark.e2e]

MOMENTS = ["in memory", "in fragments", "uploaded", "being built", "READY", "late merged", "at the end"]


def test_the_demonstration_ends_with_equal_answers_and_leaves_nothing_running(
    demonstrated: Demonstrated,
) -> None:
    shown = demonstrated.command
    assert shown.returncode == 0, (shown.stdout + shown.stderr)[-6000:]
    found = json.loads(shown.stdout)
    assert found["is_shown"]
    assert found["asked"] == found["equal"] > 0
    assert_every_moment_was_shown(found)
    refusals = found["refusals"]
    assert refusals["sent"] == sum(refusals["by_reason"].values()) == 90
    assert not refusals["lost"]
    assert not refusals["unexpected"]
    assert not _mentioning(str(demonstrated.folder))
    assert marked_processes(StackLayout(demonstrated.folder)) == []


def assert_every_moment_was_shown(found: dict[str, Any]) -> None:
    """Each by its name: the cube was found in it, and every query answered within it as the recount says."""
    queries = {query.name for query in QUERIES}
    moments = {moment["moment"]: moment for moment in found["moments"]}
    assert list(moments) == MOMENTS
    for name, moment in moments.items():
        assert moment["seen_times"] > 0, f"the cube was never {name}"
        assert set(moment["queries"]) == queries, f"{name}: not every query was answered"
        assert moment["asked"] == moment["equal"] >= len(queries), f"{name}: {moment}"
        answers = [answer for answer in found["answers"] if answer["moment"] == name]
        assert {answer["query"] for answer in answers} == queries
        assert all(answer["answer"] == answer["recount"] for answer in answers), f"{name}: {answers}"
    assert found["missing_moments"] == []
    all_of_them = moments["at the end"]["events"][1]
    assert moments["at the end"]["events"] == [all_of_them, all_of_them]
    assert moments["in memory"]["events"][0] <= all_of_them


def _mentioning(text: str) -> list[str]:
    """Command lines of living processes that name the stack's folder."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue  # it has just ended, or is nobody we started
        if text in line:
            found.append(line)
    return found
