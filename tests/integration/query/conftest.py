"""Both doors over one world; see `tests.support.query.query_doors`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cubes.flights import flights_world
from tests.support.query.query_doors import Doors, open_doors
from tests.support.query.query_world import QueryWorld

EVENTS = 400


@pytest.fixture(scope="session")
def flights() -> Iterator[QueryWorld]:
    world = flights_world(5, EVENTS)
    yield world
    world.close()


@pytest.fixture(scope="session")
def doors(flights: QueryWorld) -> Iterator[Doors]:
    with open_doors(flights) as opened:
        yield opened
