"""A test that fails is tried again in fixtures of its own, and the others keep theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[2]
_TESTS = """
import pytest

made, tries = [], []

@pytest.fixture(scope="module")
def world():
    made.append(len(made))
    yield made[-1]
    made.append("ended")

def test_before(world):
    assert made == [0]

def test_fails_twice(world):
    tries.append(world)
    assert len(tries) > 2
    assert tries == [0, 2, 4]

def test_behind(world):
    assert made == [0, "ended", 2, "ended", 4]

def test_fails_for_good(world):
    assert world == "another"
"""


def test_each_further_try_begins_with_new_fixtures_of_the_module(tmp_path: Path) -> None:
    file = tmp_path / "test_worlds.py"
    file.write_text(_TESTS)
    plugins = ("-p", "tests.support.runs.failures", "-p", "tests.support.runs.second_tries")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, *plugins, "--reruns", "2", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_PROJECT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 3 passed, 4 rerun" in done.stdout, done.stdout
    lines = done.stdout.splitlines()
    failures = next(number for number, line in enumerate(lines) if " FAILURES " in line)
    firsts = lines[failures - 4 : failures]
    told = "rerun: test_worlds.py::test_fails_for_good, call: E       AssertionError: assert "
    assert [line for line in firsts if line.startswith(told)] == [
        f"{told}4 == 'another'",
        f"{told}6 == 'another'",
    ]
