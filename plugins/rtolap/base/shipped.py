"""Files that go with the package but are run by others: the targets of spark-submit, and the DAGs.

checkout    <checkout>/spark_jobs/, <checkout>/dags/
wheel       <site-packages>/rtolap/shipped/spark_jobs/, …/shipped/dags/
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """The project's folder when rtolap runs out of a checkout, None when it is installed."""
    root = _PACKAGE.parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def shipped(name: Literal["spark_jobs", "dags"]) -> Path:
    """Return the folder of these files on this machine."""
    return (checkout() or _PACKAGE / "shipped") / name
