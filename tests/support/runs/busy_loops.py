"""Load beside the tests: a pytest plugin. `RTOLAP_TEST_BUSY_LOOPS=40` keeps 40 processes busy until the end.

They begin with the first test itself, after its servers have started: what is tried is how the product
behaves on a busy machine, not how long servers need to start on one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VARIABLE = "RTOLAP_TEST_BUSY_LOOPS"
_LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:  # a run that is killed leaves none behind
    for _ in range(1_000_000):
        pass
"""
_loops: list[subprocess.Popen[bytes]] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Start the loops before the first test of the run, in the first of its processes alone."""
    count = int(os.environ.get(VARIABLE, "0"))
    is_first_process = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if is_first_process and not _loops:
        _loops.extend(subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(count))


def pytest_unconfigure() -> None:
    """Stop the loops."""
    for loop in _loops:
        loop.kill()
    for loop in _loops:
        loop.wait()
    _loops.clear()
