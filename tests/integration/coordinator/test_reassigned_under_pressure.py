"""Partitions are moved to real receivers that may not read on, because closed segments wait for history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.model.segment import SegmentState
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0",), "new": ("n0",)}
UNBUILT_MAX = 2
EVENTS = 3_000  # of some twenty segments


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    create_topic(unique_name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    one = World(services, kafka, unique_name, 5, SETS)
    with closing(services), closing(one):
        services.start_coordinators()
        one.start_receivers("old")
        services.start_query()
        one.declare()
        yield one


def _unbuilt(world: World) -> int:
    counts = world.services.coordinator.cube(world.cube).segments
    return counts[SegmentState.IMMUTABLE] + counts[SegmentState.REMOTE_PERSISTED]


def _all_visible(world: World) -> bool:
    try:
        return world.ask()[0] == world.ends()
    except httpx.HTTPStatusError as error:
        if error.response.json()["code"] not in ("unavailable", "not_reached"):
            raise
        return False


def test_what_was_answered_before_is_answered_by_an_owner_that_waits_for_history(world: World) -> None:
    services, client = world.services, world.services.coordinator
    world.produce(EVENTS)
    wait_for("all events are visible", lambda: _all_visible(world), 90)
    wait_for("segments are closed and nobody builds them", lambda: _unbuilt(world) > 2 * UNBUILT_MAX, 90)
    services.start_receiver(
        "n0", "new", "--checkpoint-interval-s", "2", "--unbuilt-segments-max", str(UNBUILT_MAX)
    )
    world.wait_for_receivers()
    assert client.reassign(
        world.cube, ReassignRequest(assignment={"new": tuple(range(PARTITIONS))}, warm_up=False)
    ).applied
    wait_for("what was answered before is answered again", lambda: _all_visible(world), 90)
    positions, answer = world.ask()
    assert answer == world.expected(positions)

    def problem() -> str:
        return client.cube(world.cube).problem or ""

    wait_for("the cube says that its owner waits", lambda: "receiver n0 is held since" in problem(), 30)
    assert f"at most {UNBUILT_MAX} may" in problem()
    world.produce(200)
    body = services.sql(world.sql)
    assert "not_consuming" in {warning["code"] for warning in body["warnings"]}
    assert {int(p): at for p, at in body["positions"][world.cube].items()} == positions
