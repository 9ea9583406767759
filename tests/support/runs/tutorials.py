"""Pages that are run as a reader would: their blocks of shell, and what they say that these print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.demonstrated import user_environment
from tests.support.paths import PROJECT
from tests.support.waiting import patience_s

_BETWEEN_BLOCKS = "\x1e"
_RULES_AND_SPACES = re.compile(r"[\s│┃|]+")


@dataclass(frozen=True)
class Step:
    """A block of shell. `expected` are lines that it prints in this order, among others.

    `line` is where it begins in its page."""

    line: int
    shell: str
    expected: tuple[str, ...]


def steps_of(page: str) -> tuple[Step, ...]:
    """Return the blocks of a page that are marked `sh`, each with the block marked `text` that follows it.

    ValueError for another block of code: a reader could not tell whether it is to be typed."""
    steps: list[Step] = []
    for token in MarkdownIt().parse(page):
        if token.type != "fence":
            continue
        assert token.map is not None
        line = token.map[0] + 1
        if token.info == "sh":
            steps.append(Step(line, token.content, ()))
        elif token.info == "text" and steps and not steps[-1].expected:
            last = steps.pop()
            steps.append(Step(last.line, last.shell, tuple(token.content.splitlines())))
        else:
            raise ValueError(f"line {line}: a block is sh, or text once after sh; found {token.info!r}")
    return tuple(steps)


def run(page: Path, folder: Path, *, timeout_s: float) -> None:
    """Run the blocks of a page, one after the other in one shell that stops at the first failure.

    AssertionError names the line of the block that failed, or whose output lacks what the page says."""
    steps = steps_of(page.read_text())
    assert steps, f"{page} has nothing to run"
    mark = f"\nprintf '{_BETWEEN_BLOCKS}'\n"
    script = "set -euo pipefail\n" + mark.join(step.shell for step in steps) + mark
    environment = {
        **user_environment(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CHECKOUT": str(PROJECT),
        "COLUMNS": "200",
        "PIP_COMPILE": "0",  # the ten thousand files of an Airflow; those that are imported are compiled then
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience_s(timeout_s),
        check=False,
    )
    outputs = done.stdout.split(_BETWEEN_BLOCKS)
    for step, output in zip(steps, outputs, strict=False):
        missing = first_missing(step.expected, output)
        assert missing is None, f"{page.name}:{step.line} does not print {missing!r}, but {output}"
    ended = min(len(outputs) - 1, len(steps) - 1)
    assert done.returncode == 0, f"{page.name}:{steps[ended].line} ends with {done.returncode}: {outputs[-1]}"


def first_missing(expected: tuple[str, ...], output: str) -> str | None:
    """Return the first line that is not in the output after those before it; None if all are.

    Tables on a terminal and in a pipe compare equal: spaces, tabs and rules are one space."""
    lines = iter([_plain(line) for line in output.splitlines()])
    for line in expected:
        wanted = _plain(line)
        if not any(wanted in found for found in lines):
            return line
    return None


def _plain(line: str) -> str:
    return _RULES_AND_SPACES.sub(" ", line).strip()
