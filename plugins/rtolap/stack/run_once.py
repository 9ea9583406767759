"""Programs that prepare a server and end: a database is made, a folder formatted."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from rtolap.base.errors import ProcessFailed

_SHOWN_CHARS = 3000


def run_once(
    command: Sequence[str], *, failure: str, timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    """Raises ProcessFailed, which says `failure` and shows the end of what was printed."""
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode != 0:
        raise ProcessFailed(failure, found=done.stdout[-_SHOWN_CHARS:])
