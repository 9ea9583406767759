"""Triggers on Airflow's own runner, each case in a process of its own.

The runner switches stacks (greenlets). Those that outlive its thread end the process when they are collected.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("triggerer_channel_cases.py")
NAMES = [
    node.name
    for node in ast.parse(CASES.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]
# The process ends at once after the result, without a last collection.
RUN = "import os, sys, pytest; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)"


@pytest.mark.parametrize("name", NAMES)
def test_on_the_runner(name: str, tmp_path: Path) -> None:
    child = [sys.executable, "-c", RUN, "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*child, f"{CASES}::{name}"],
        cwd=CASES.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "1 passed" in done.stdout
