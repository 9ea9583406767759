"""Programs that a test runs to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def rtolap(environment: Mapping[str, str], *arguments: str, columns: int = 200) -> str:
    """What `rtolap` prints on a terminal of so many columns. AssertionError when it fails."""
    return _run(
        [sys.executable, "-m", "rtolap.cli.main", *arguments],
        timeout_s=60,
        environment={**environment, "COLUMNS": str(columns)},
    )


def install_apart(folder: Path, packages: Sequence[str], *, timeout_s: float) -> None:
    """Install packages into a folder of their own, without what they need."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    _run([*pip, *packages], timeout_s=timeout_s)


def _run(command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
