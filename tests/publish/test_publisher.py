"""A publisher commits READY versions to an Iceberg table: exactly their files, and the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cubes.published import PublishedCube


@pytest.fixture
def cube(tmp_path: Path) -> Iterator[PublishedCube]:
    made = PublishedCube(tmp_path)
    yield made
    made.close()


def test_a_reader_of_the_table_gets_the_sums_of_the_events(cube: PublishedCube) -> None:
    cube.promote(0)
    publication = cube.declared()
    look = cube.publisher(publication).look()
    assert (look.committed, look.snapshots) == (1, 1)
    cube.assert_published(publication)
