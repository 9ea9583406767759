"""Tests of what the lock promises about the environment."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from rtolap.stack.artifacts import pyspark_jars

from tests.support.import_graph import import_graph

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
    extras = [name for names in project["project"]["optional-dependencies"].values() for name in names]
    declared = [*project["project"]["dependencies"], *extras, *project["dependency-groups"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in declared}
    assert names <= locked


def _requirements() -> dict[str, list[str]]:
    """{extra, or "" for what everybody needs: names of distributions}."""
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [_name(text) for text in texts] for extra, texts in groups.items()}


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def _imported() -> frozenset[str]:
    """The top-level packages that the shipped code imports."""
    modules = import_graph("rtolap", "spark_jobs", "dags").modules
    return frozenset(name.split(".")[0] for name in modules) - {"rtolap", "spark_jobs", "dags"}


def test_the_shipped_code_imports_what_is_declared() -> None:
    owners = importlib.metadata.packages_distributions()
    declared = {name for names in _requirements().values() for name in names}
    imported = _imported() - {*sys.stdlib_module_names, "airflow"}
    undeclared = {
        package for package in imported if not {_name(owner) for owner in owners[package]} & declared
    }
    assert undeclared == set()


@pytest.mark.parametrize(("extra", "packages"), [("airflow", {"airflow"}), ("spark", {"pyspark"})])
def test_only_a_role_that_asks_for_it_gets_airflow_and_spark(extra: str, packages: set[str]) -> None:
    requirements = _requirements()
    assert any(name.startswith(("apache-airflow", "pyspark")) for name in requirements[extra])
    assert not [name for name in requirements[""] if name.startswith(("apache-airflow", "pyspark"))]
    assert packages <= _imported()


def test_no_requirement_pins_a_version_for_those_who_install_the_package() -> None:
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]
    texts = [
        *project["dependencies"],
        *(text for names in project["optional-dependencies"].values() for text in names),
    ]
    assert [text for text in texts if "==" in text] == []
