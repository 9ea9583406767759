"""Layers inside rooms: no circle between a room's parts, and no import inside a function."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

from tests.support.import_arrows import parse_arrows
from tests.support.import_graph import cycle, described, import_graph, imports_between_parts, rooms
from tests.support.paths import PLUGINS, PROJECT

_LINES_MAX = 2_000  # of a room without layers of its own
_CODE = (PLUGINS / "rtolap", PROJECT / "dags", PROJECT / "spark_jobs", PROJECT / "benchmarks")


def test_no_part_of_a_room_leads_back_to_itself() -> None:
    graph = import_graph("rtolap", "spark_jobs", "dags", "benchmarks")
    found = {}
    for room in rooms(graph, "rtolap"):
        imports = imports_between_parts(graph, room)
        if circle := cycle(imports):
            found[room] = described(circle, imports)
    assert found == {}


def test_a_circle_of_parts_is_found_and_told_with_its_imports() -> None:
    imports = {
        ("loads", "http"): ["rooms.loads.load -> rooms.http.pipe"],
        ("http", "loads"): ["rooms.http.load -> rooms.loads.load"],
        ("http", "labels"): ["rooms.http.load -> rooms.labels"],
    }
    circle = cycle(imports)
    assert set(circle) == {"loads", "http"}
    assert "loads -> http (rooms.loads.load -> rooms.http.pipe)" in described(circle, imports)
    assert cycle([("http", "loads"), ("http", "labels"), ("loads", "labels")]) == ()


_NOT_OF_THE_MODULE = re.compile(r"^(?!(?:import|from)\s).*\bimport\b", re.MULTILINE)


def _local_imports(text: str) -> list[int]:
    """Return the lines of imports that stand inside a function. A text in which each line with the word
    begins with an import has none, and is not parsed."""
    if _NOT_OF_THE_MODULE.search(text) is None:
        return []
    return [
        node.lineno
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def test_no_function_imports() -> None:
    files = [file for folder in _CODE for file in folder.rglob("*.py")]
    assert len(files) > 500
    assert {str(file): lines for file in files if (lines := _local_imports(file.read_text()))} == {}


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_import_inside_a_function_is_seen(kind: str) -> None:
    assert _local_imports(f"import os\n{kind} load():\n    if os:\n        from json import loads\n") == [4]


def _contracts() -> configparser.ConfigParser:
    contracts = configparser.ConfigParser()
    contracts.read(PROJECT / ".importlinter")
    return contracts


def _layers() -> dict[str, list[list[str]]]:
    """{room: its layers, the highest first, each by its parts}, as import-linter holds them."""
    mark = "importlinter:contract:layers-of-"
    return {
        section.removeprefix(mark): [
            line.split(" : ") for line in contract["layers"].splitlines() if line.strip()
        ]
        for section, contract in _contracts().items()
        if section.startswith(mark)
    }


def test_every_large_room_has_layers_of_its_own() -> None:
    rooms_drawn = parse_arrows(_contracts()["importlinter:contract:arrows"]["arrows"].splitlines())
    lines = {
        room: sum(len(file.read_text().splitlines()) for file in folder.rglob("*.py"))
        for room in rooms_drawn
        if (folder := PLUGINS / "rtolap" / Path(*room.split("."))).is_dir()
    }
    assert {room for room, count in lines.items() if count > _LINES_MAX} <= _layers().keys()


def test_the_drawing_of_the_layers_is_the_one_that_the_import_check_holds() -> None:
    page = (PROJECT / "docs" / "rooms.md").read_text()
    drawn = {
        room: [line.split() for line in drawing.replace("\n    ", " ").splitlines()]
        for room, drawing in re.findall(r"^## (\S+)\n```\n(.*?)```", page, re.S | re.M)
    }
    assert drawn == _layers()
