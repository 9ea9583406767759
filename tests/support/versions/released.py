"""The code of another commit, where the history is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.paths import PROJECT


class NoHistory(Exception):
    """The commit is not in this checkout: it was copied without git, or its history is shallow."""


def released_plugins(commit: str, folder: Path) -> Path:
    """Return the folder of plugins as they were at the commit, below `folder`. Raises NoHistory."""
    known = subprocess.run(
        ["git", "-C", str(PROJECT), "cat-file", "-e", f"{commit}^{{commit}}"],
        capture_output=True,
        check=False,
    )
    if known.returncode:
        raise NoHistory(f"commit {commit} is not here: {known.stderr.decode().strip()}")
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "plugins.tar"
    subprocess.run(
        ["git", "-C", str(PROJECT), "archive", "-o", str(archive), commit, "plugins", "spark_jobs"],
        check=True,
    )
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    return folder / "plugins"
