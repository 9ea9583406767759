"""Jobs of Spark in drivers that wait for the next one of the same command line, for tests of what jobs do.

To start Spark and its Python takes eight seconds, what a test has it do takes one. These tests hand jobs over
as an agent does (`rtolap.agent.warm_launcher`), to a driver of the process that runs them. Tests of how jobs
are submitted, killed and named start what an operator starts.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import rtolap
from rtolap.agent import warm_launcher

from tests.support.runs.spark_job import JOBS, OWNER
from tests.support.waiting import patience_s

_IDLE_S = 60.0  # it has the memory of a build: where the next tests have none, it ends
_JOB = Path(__file__).with_name("spark_job.py")
_OF_ONE_TEST = "PYTEST_CURRENT_TEST"
_OF_A_SESSION = "spark.rtolap."
_ENDED_S = 240.0


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="rtolap-drivers-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def handed_over(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str], Path]:
    """Return a command that has a driver that waits do what `command`, a whole spark-submit, does; its
    environment and its folder.

    Ids of builds, what is refused and exit codes are the same. What is said on its error output comes on its
    output.
    """
    place = next(at for at, word in enumerate(command) if Path(word).name in JOBS)
    settings: dict[str, str] = {}
    options: list[str] = []
    for word, value in _pairs(command[1:place]):
        name, _, text = value.partition("=")
        if word == "--conf" and name.startswith(_OF_A_SESSION):
            settings[name] = text
        else:
            options += [word, value]
    launcher = [sys.executable, "-I", "-S", warm_launcher.__file__, str(_folder()), f"{_IDLE_S:g}", str(_JOB)]
    submit = [command[0], *options, str(_JOB), json.dumps(settings), *command[place:]]
    shared = {name: value for name, value in environment.items() if name != _OF_ONE_TEST}
    shared[OWNER] = str(os.getpid())
    return [*launcher, rtolap.__version__, "--", *submit], shared, _folder()


def run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a job by a driver that waits, until the job has ended."""
    words, shared, folder = handed_over(command, environment)
    return run_apart(words, shared, folder)


def run_apart(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a job by a driver of its own, until it has ended; in a folder that is given."""
    return subprocess.run(
        command,
        env=environment,
        cwd=folder or _folder(),
        capture_output=True,
        text=True,
        timeout=patience_s(_ENDED_S),
        check=False,
    )


def logs() -> str:
    """Return what the drivers that wait have said beside the output of their jobs."""
    return "".join(log.read_text(errors="replace") for log in sorted(_folder().glob("*.log")))


def _pairs(options: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(options[::2], options[1::2], strict=True))
