"""The spec of a process: what to run, where, and how to see that it is ready; programs that prepare it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rtolap.base.errors import ProcessFailed
from rtolap.stack.inherited import inherited

_SHOWN_CHARS = 3000


@dataclass(frozen=True)
class ProcessSpec:
    """A part, not yet running.

    folder     holds `<name>.pid` and `<name>.log`
    address    host:port where it answers, empty when it does not listen
    ports      all that it listens on; they must be free before it starts, and its own once it answers
    env        added to what is `inherited`
    ready      given its start time (epoch seconds): None once it answers, otherwise what is missing, in words
    prepare    run before each start (writes configuration, formats folders); must be repeatable
    """

    name: str
    folder: Path
    argv: tuple[str, ...]
    address: str = ""
    ports: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    ready: Callable[[float], str | None] = lambda started_s: None
    prepare: Callable[[], None] = lambda: None
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0


def run_once(
    command: Sequence[str], *, failure: str, timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    """Run a program that prepares a server and ends: a database is made, a folder formatted.

    `env` is added to what is `inherited`. Raises ProcessFailed, which says `failure` and shows the end of
    what was printed.
    """
    done = subprocess.run(
        command,
        env={**inherited(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ProcessFailed(failure, found=done.stdout[-_SHOWN_CHARS:])
