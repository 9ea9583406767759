"""Both doors over one world; see `rtolap.testing.query_doors`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.testing.flights import flights_world
from rtolap.testing.query_doors import Doors, open_doors
from rtolap.testing.query_world import QueryWorld

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
