"""Both endpoints over one world; see `tests.support.query.query_endpoints`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cubes.flights import flights_world
from tests.support.query.query_endpoints import Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld

EVENTS = 400


@pytest.fixture(scope="session")
def flights() -> Iterator[QueryWorld]:
    world = flights_world(5, EVENTS)
    yield world
    world.close()


@pytest.fixture(scope="session")
def endpoints(flights: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(flights) as opened:
        yield opened
