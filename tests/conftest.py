"""Settings for all tests. The Airflow variables must stand before anything imports airflow."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_PROJECT = Path(__file__).resolve().parents[1]

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="rtolap-airflow-")
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(_PROJECT / "dags")
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(_PROJECT / "plugins")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests in `integration/` and `e2e/` carry their marker even when a file forgets it.

    `-m "not integration and not e2e"` therefore always is the quick part.

    Where several processes share the work, what shares servers stays together in one: a folder of
    `integration/`, a file elsewhere.
    """
    for item in items:
        path = item.path.relative_to(config.rootpath)
        parts = path.parts
        together = path.parent if "integration" in parts and "e2e" not in parts else path
        item.add_marker(pytest.mark.xdist_group(together.as_posix()))
        for marker in ("integration", "e2e"):
            if marker in parts:
                item.add_marker(getattr(pytest.mark, marker))


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ["AIRFLOW_HOME"], ignore_errors=True)
