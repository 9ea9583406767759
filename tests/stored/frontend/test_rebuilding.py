"""Damaged tablets of real nodes are made whole from other replicas, while nothing is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import Unavailable

from tests.support.stored.replicated_table import PEOPLE, TABLET, ReplicatedTable


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicatedTable]:
    made = ReplicatedTable(tmp_path)
    yield made
    made.close()


def test_a_damaged_tablet_is_made_whole_without_a_load(world: ReplicatedTable, tmp_path: Path) -> None:
    world.load(1, 2)
    world.load(2, 3)
    world.damage("b")
    assert (world.versions("a"), world.versions("b")) == ({TABLET: 2}, {})
    with pytest.raises(Unavailable, match="cannot be opened here"):
        world.ids("b", 2)
    assert world.rebuilding.run_once() == 1
    assert world.ids("b", 2) == [1, 2, 3]
    assert world.versions("b") == {TABLET: 2}
    assert [path.name for path in (tmp_path / "b" / "broken").iterdir()], "its bytes are kept"
    assert world.rebuilding.run_once() == 0
    world.load(4)
    assert world.ids("b", 3) == [1, 2, 3, 4]


def test_without_a_healthy_replica_nothing_is_touched_until_there_is_one(world: ReplicatedTable) -> None:
    """The bytes of a damaged tablet may be all that there is."""
    world.load(1, 2)
    world.damage("a")
    world.damage("b")
    world.nodes.stop("c")
    assert world.rebuilding.run_once() == 0
    assert world.versions("a") == world.versions("b") == {}
    assert world.nodes.at("a").status().broken, "it was not rebuilt"
    world.nodes.start("c")
    assert world.rebuilding.run_once() == 2
    assert world.ids("a", 1) == world.ids("b", 1) == world.ids("c", 1) == [1, 2]


def test_a_tablet_whose_files_are_gone_comes_back(world: ReplicatedTable, tmp_path: Path) -> None:
    world.load(1)
    world.load(2)
    world.nodes.stop("c")
    shutil.rmtree(tmp_path / "c" / "tablets")
    world.nodes.start("c")
    assert world.rebuilding.run_once() == 1
    assert world.ids("c", 2) == [1, 2]


def test_a_tablet_of_a_dropped_table_is_left_alone(world: ReplicatedTable) -> None:
    world.load(1)
    world.nodes.stop("b")
    world.catalogue.drop_table("shop", "people")
    world.catalogue.create_table(PEOPLE)  # another one of the name
    world.nodes.start("b")
    assert world.versions("b") == {}
    assert world.rebuilding.run_once() == 0
