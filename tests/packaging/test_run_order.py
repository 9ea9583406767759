"""The order in which the scopes of the run of all tests begin, and which process gets which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import PROJECT
from tests.support.runs.scheduling import ORDER, WHOLE_STACKS, WITHOUT_SERVERS, place_of
from tests.support.waiting import patience_s

CONFTEST = """
from tests.support.runs.scheduling import ByServers

def pytest_xdist_make_scheduler(config, log):
    return ByServers(config, log)
"""
# `a` and `b` begin. `a` has two tests to go when the end of `c` is waited for, which only `b` can bring.
FILES = {
    "test_a.py": """
from tests.support.waiting import until

def test_0(): pass
def test_1(folder):
    (folder / "begun").touch()
    until((folder / "c").exists, "the scope that nobody had", timeout_s=10)
def test_2(): pass
""",
    "test_b.py": """
from tests.support.waiting import until

def test_0(folder):
    until((folder / "begun").exists, "the long test")
def test_1(): pass
def test_2(): pass
""",
    "test_c.py": """
def test_0(folder):
    (folder / "c").touch()
""",
}
FOLDER = """
import pathlib, pytest

@pytest.fixture
def folder():
    return pathlib.Path(__file__).parent
"""


def test_each_folder_of_real_servers_has_its_place_in_the_order_and_each_place_a_folder() -> None:
    files = (PROJECT / "tests" / "integration").rglob("test_*.py")
    places = {place_of(f"{file.relative_to(PROJECT).as_posix()}::test_it") for file in files}
    assert {*ORDER} == {*places, WITHOUT_SERVERS}
    assert len(ORDER) == len({*ORDER})


def test_files_without_servers_are_scopes_of_their_own_and_whole_stacks_are_one() -> None:
    assert place_of("tests/cubes/test_it.py::test_a") == WITHOUT_SERVERS
    for folder in ("demo", "tutorials"):
        assert place_of(f"tests/integration/{folder}/test_it.py::test_a") == WHOLE_STACKS


def test_a_scope_goes_to_the_process_that_is_free_first(tmp_path: Path) -> None:
    for name, text in {"conftest.py": CONFTEST + FOLDER, **FILES}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = [
        "--numprocesses",
        "2",
        "--dist",
        "loadscope",
        "--no-loadscope-reorder",
        "-p",
        "no:cacheprovider",
    ]
    without = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env={**without, "PYTHONPATH": f"{PROJECT}{os.pathsep}{PROJECT / 'plugins'}"},
        capture_output=True,
        text=True,
        timeout=patience_s(120),
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
