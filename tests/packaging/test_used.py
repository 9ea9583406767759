"""Nothing in the package waits for a caller, and faces do not assemble what use cases do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import PLUGINS, PROJECT

_CALLERS = (PLUGINS, PROJECT / "dags", PROJECT / "spark_jobs", PROJECT / "benchmarks", PROJECT / "scripts")
# Made by a generator, and by kafka-python's: a request names its response. And mkdocs' hooks.
_CALLED_BY_NAME = re.compile(
    r".*_pb2\.py|.*/kafka/administration/requests\.py|.*/migrations/.*|.*/scripts/site\.py"
)
_WORD = re.compile(r"[A-Za-z_]\w+")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DOCUMENTED = (ast.Module, *_DEFINITIONS)


def _words(tree: ast.Module) -> Iterator[str]:
    """Yield the names that code uses, in texts too; docstrings and imports use nothing."""
    docs: set[int] = set()
    for node in ast.walk(tree):  # what documents something comes after it
        kind = type(node)
        if kind in _DOCUMENTED:
            if node.body and isinstance(node.body[0], ast.Expr):
                docs.add(id(node.body[0].value))
        elif kind is ast.Name:
            if isinstance(node.ctx, ast.Load):
                yield node.id
        elif kind is ast.Attribute:
            yield node.attr
        elif kind is ast.Constant:
            if isinstance(node.value, str) and id(node) not in docs:
                yield from _WORD.findall(node.value)
        elif kind is ast.alias and node.asname is not None:
            yield node.name


def _unused(files: dict[Path, str], documented: str) -> set[str]:
    """Return the functions and classes at the top of modules that neither code nor a page of docs names."""
    trees = {file: ast.parse(text) for file, text in files.items()}
    used = {word for tree in trees.values() for word in _words(tree)} | set(_WORD.findall(documented))
    return {
        f"{file.stem}.{node.name}"
        for file, tree in trees.items()
        if not _CALLED_BY_NAME.fullmatch(str(file)) and not file.is_relative_to(PROJECT / "benchmarks")
        for node in tree.body
        if isinstance(node, _DEFINITIONS) and node.name not in used and not _is_command(node)
    }


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return True for what others call: of Python's own protocols, or handed on by a decorator (a command, a
    route, a check of a model)."""
    return node.name.startswith("__") or (
        any(isinstance(decorator, ast.Call) for decorator in node.decorator_list)
        and not isinstance(node, ast.ClassDef)
    )


def test_whatever_the_package_defines_is_used_by_more_than_tests() -> None:
    files = {
        file: file.read_text() for folder in _CALLERS if folder.is_dir() for file in folder.rglob("*.py")
    }
    pages = [page for page in (PROJECT / "docs").rglob("*.md") if "testing" not in str(page)]
    documented = " ".join(page.read_text() for page in [PROJECT / "README.md", *pages])
    installed = (PROJECT / "pyproject.toml").read_text()
    assert _unused(files, documented + installed) == set()


def test_a_definition_that_nothing_names_is_found() -> None:
    lonely = (
        "def used() -> None: ...\ndef lonely() -> None:\n    '''As `alone`.'''\nclass Alone: ...\nused()\n"
    )
    files = {Path("m.py"): lonely, Path("n.py"): "from m import lonely\n"}
    assert _unused(files, "") == {"m.lonely", "m.Alone"}
    assert _unused(files, "see `Alone`") == {"m.lonely"}


_FACES = (PLUGINS / "rtolap" / "cli", PLUGINS / "rtolap" / "airflow", PROJECT / "dags")
_PARTS = re.compile(
    r"plan_(?!digest|status|json|from)\w+|Limits|PlannedDrains|ClusterActions|BrokerOperations"
)


def test_commands_and_dags_do_not_assemble_plans_and_operations_of_the_fleet() -> None:
    found = {
        f"{file.relative_to(PROJECT)}: {alias.name}"
        for folder in _FACES
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rtolap.fleet.")
        for alias in node.names
        if _PARTS.fullmatch(alias.name)
    }
    assert found == set()


_PRODUCTS = re.compile(r"rtolap\.(fleet|sep|stored)\.(?!operations\b|\w+\.operations\b).*")
_SINGLE_CALLS = {  # a face calls each by itself, or reads what was returned, and puts nothing together
    "rtolap.fleet.isolation.registry.HostRegistry",
    "rtolap.fleet.moves.status.MoveStatus",
    "rtolap.fleet.planning.plan.Plan",
    "rtolap.sep.hbase.peers.ClusterKey",
    "rtolap.sep.status.collect.collect",
    "rtolap.sep.status.model.ReplicationStatus",
    "rtolap.sep.status.sources.ReplicationSources",
    "rtolap.sep.status.wait.DueLogs",
    "rtolap.sep.status.wait.due_logs",
    "rtolap.sep.subscriptions.states.SubscriptionState",
}


def _parts_of_both(first: list[str], second: list[str]) -> set[str]:
    """Return the parts of products, use cases aside, that both faces import."""
    taken = [
        {
            f"{node.module}.{alias.name}"
            for text in face
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and _PRODUCTS.fullmatch(node.module or "")
            for alias in node.names
        }
        for face in (first, second)
    ]
    return taken[0] & taken[1]


def test_no_use_case_is_assembled_by_the_command_line_and_again_for_airflow() -> None:
    faces = [
        [file.read_text() for file in (PLUGINS / "rtolap" / face).rglob("*.py")]
        for face in ("cli", "airflow")
    ]
    assert _parts_of_both(*faces) == _SINGLE_CALLS


def test_a_part_that_both_faces_import_is_found_and_a_use_case_is_none() -> None:
    both = "from rtolap.fleet.monitoring.sources import read_sources\n"
    use_case = "from rtolap.sep.operations import drop_subscription\n"
    assert _parts_of_both([both, use_case], [use_case + both]) == {
        "rtolap.fleet.monitoring.sources.read_sources"
    }
    assert _parts_of_both([both], [use_case]) == set()
