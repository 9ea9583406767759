"""Programs that a test runs to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from rtolap.cli.main import app
from rtolap.cli.output import errors
from typer.testing import CliRunner

from tests.support.waiting import patience_s


def rtolap(environment: Mapping[str, str], *arguments: str, columns: int = 200) -> str:
    """Return what `rtolap` prints on a terminal of so many columns. AssertionError when it fails."""
    return _run(
        [sys.executable, "-m", "rtolap.cli.main", *arguments],
        timeout_s=60,
        environment={**environment, "COLUMNS": str(columns)},
    )


def ended(
    environment: Mapping[str, str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return what a process of `rtolap` says on its two outputs, into pipes, and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "rtolap.cli.main", *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patience_s(90),
        check=False,
    )


def called(
    environment: Mapping[str, str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return a function that calls `rtolap` in this process. Another process spends a second of processor
    time on its imports, so `ended` is for what a process of its own shows."""
    code = 0
    with (
        patch.dict(os.environ, environment),
        CliRunner().isolation(input=stdin) as (told, complained, _),
    ):
        try:
            with errors():
                app(arguments)
        except SystemExit as exited:
            code = exited.code if isinstance(exited.code, int) else 0
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = told.getvalue().decode(), complained.getvalue().decode()
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


def install_apart(folder: Path, packages: Sequence[str], *, timeout_s: float) -> None:
    """Install packages into a folder of their own, without what they need."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    _run([*pip, *packages], timeout_s=timeout_s)


def kill_when(
    is_time: Callable[[str], bool], command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> None:
    """Run it, and SIGKILL it with its children at the line for which `is_time`.

    AssertionError, with the exit code and the end of both outputs, when it ended before."""
    complaints = folder / "killed.stderr"
    lines: list[str] = []
    with (
        complaints.open("wb") as stderr,
        subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if is_time(line):
                os.killpg(process.pid, signal.SIGKILL)
                process.stdout.read()
                return
    ends = "".join(lines)[-2000:], complaints.read_text(errors="replace")[-4000:]
    raise AssertionError(f"it ended before it could be killed, with {process.returncode}: {ends}")


def _run(command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s(timeout_s),
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
