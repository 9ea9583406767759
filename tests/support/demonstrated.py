"""The demonstration as a user starts it, once for those who look at its answers and at what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import patience_s

_PROJECT = Path(__file__).resolve().parents[2]


class Demonstrated(NamedTuple):
    """A demonstration that has ended. `folder` is the stack's, which has been stopped; nobody has looked at
    the code of `command`."""

    folder: Path
    command: subprocess.CompletedProcess[str]


def user_environment() -> dict[str, str]:
    """Return the environment without the settings of the tests' own process, which runs Airflow in unit test
    mode, in which a scheduler never rests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "RTOLAP_"))}


def demonstrate(folder: Path) -> Demonstrated:
    """Run two days of the demonstration, in a new stack of this folder."""
    rtolap = [sys.executable, "-m", "rtolap.cli.main"]
    command = subprocess.run(
        [*rtolap, "demo", "--days", "2", "--exit", "--json", "--dir", str(folder)],
        cwd=_PROJECT,
        env=user_environment(),
        capture_output=True,
        text=True,
        timeout=patience_s(840),
        check=False,
    )
    return Demonstrated(folder, command)
