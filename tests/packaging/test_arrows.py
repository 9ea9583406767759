"""The house as it is drawn: the drawing's arrows are those that are held, and no room is crowded."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from importlinter import Contract

from tests.support.import_arrows import ArrowsContract, parse_arrows
from tests.support.import_graph import import_graph
from tests.support.paths import PLUGINS, PROJECT

_MODULES_MAX = 25


def _contracts() -> configparser.ConfigParser:
    contracts = configparser.ConfigParser()
    contracts.read(PROJECT / ".importlinter")
    return contracts


def _drawn() -> dict[str, tuple[str, ...]]:
    return parse_arrows(_contracts()["importlinter:contract:arrows"]["arrows"].splitlines())


def test_the_drawing_shows_the_arrows_that_the_import_check_holds() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text()
    blocks = re.findall(r"```\n(.*?)```", page, re.S)
    (drawing,) = (block for block in blocks if block.startswith("base ->"))
    assert parse_arrows(drawing.splitlines()) == _drawn()


def _check(arrows: list[str]) -> dict[str, list[object]]:
    graph = import_graph("rtolap", "spark_jobs", "dags", "benchmarks")
    contract: Contract = ArrowsContract(
        name="arrows",
        session_options={},
        contract_options={"arrows": arrows, "outside": ["rtolap.stored", "rtolap.cubes"]},
    )
    return contract.check(graph, verbose=False).metadata


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("draw", ("base", "protocols")), "undrawn"),
        (("draw", ("base", "model", "protocols", "kafka")), "unused"),
        (("draw", None), "roomless"),
    ],
)
def test_an_arrow_too_few_an_arrow_too_many_and_a_module_without_a_room_break_the_contract(
    changed: tuple[str, tuple[str, ...] | None], told: str
) -> None:
    rooms: dict[str, tuple[str, ...] | None] = {**_drawn(), changed[0]: changed[1]}
    lines = [f"{room} -> {' '.join(others)}" for room, others in rooms.items() if others is not None]
    assert _check(lines)[told]


def _crowded(root: Path) -> dict[str, int]:
    counts = {
        str(folder.relative_to(root)): sum(1 for file in folder.glob("*.py") if file.name != "__init__.py")
        for folder in (root, *root.rglob("*"))
        if folder.is_dir()
    }
    return {folder: count for folder, count in counts.items() if count > _MODULES_MAX}


def test_no_room_has_more_modules_on_a_level_than_a_person_takes_in() -> None:
    assert _crowded(PLUGINS / "rtolap") == {}
    assert _crowded(PROJECT / "tests" / "support") == {}


def test_every_room_opens_with_its_page() -> None:
    for folder in (PLUGINS / "rtolap").rglob("*"):
        if folder.is_dir() and any(folder.glob("*.py")):
            assert (folder / "__init__.py").read_text().startswith('"""'), folder
