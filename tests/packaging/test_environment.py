"""What the lock promises about the environment."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from rtolap.stack.artifacts import pyspark_jars

_PROJECT = Path(__file__).resolve().parents[2]
_LOCK = (_PROJECT / "requirements.lock").read_text()


def test_pyspark_is_the_full_one_with_its_jars() -> None:
    # pyspark-client owns the same folder and would leave it without jars
    assert importlib.metadata.version("pyspark") == "4.3.0"
    assert list(pyspark_jars().glob("zookeeper-3*.jar"))
    assert list(pyspark_jars().glob("ivy-*.jar"))
    assert "pyspark-client" not in _LOCK


def test_the_lock_pins_everything_by_hash_and_names_no_registry() -> None:
    assert "://" not in _LOCK
    assert "--index" not in _LOCK
    requirements = re.split(r"\n(?=\S)", _LOCK.strip())
    assert len(requirements) > 100
    for requirement in requirements:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^]]*\])?==", requirement), requirement.splitlines()[0]
        assert "--hash=sha256:" in requirement, requirement.splitlines()[0]


def test_the_lock_holds_every_direct_dependency() -> None:
    locked = {line.split("==")[0].split("[")[0].lower() for line in _LOCK.splitlines() if "==" in line[:80]}
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text())
    declared = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in declared}
    assert names <= locked
