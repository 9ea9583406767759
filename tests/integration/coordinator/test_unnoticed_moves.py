"""Partitions move between real receivers, and a client that asks all the time is never without an answer."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import Refused, RtolapError
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.moves.asked_stream import Asking, Stream

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0",), "new": ("n0",)}
GAP_S_MAX = 1.0
HELD_ROWS = (0, 1_000_000)
CHUNK = 5_000
VICTIMS = ("n0", "o0", "query", "coordinator-0")
MOMENTS = ("planned", "warming up", "stands")


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=1)
    one = World(services, kafka, name, 3, SETS)
    with closing(services), closing(one):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


def move(world: World, assignment: dict[str, tuple[int, ...]]) -> int:
    """Move, refuse another move meanwhile, wait until it has ended, and return its epoch."""
    client = world.services.coordinator
    planned = client.reassign(world.cube, ReassignRequest(assignment=assignment, warm_up=True))
    assert not planned.applied
    epoch = planned.planned_epoch
    again = client.reassign(world.cube, ReassignRequest(assignment=assignment, warm_up=True))
    if client.cube(world.cube).next_epoch == epoch:
        assert again.planned_epoch == epoch
        with pytest.raises(Refused, match=f"another move of cube {world.cube} runs"):
            client.reassign(
                world.cube, ReassignRequest(assignment={"new": tuple(range(PARTITIONS))}, warm_up=False)
            )

    def is_assigned() -> bool:
        status = client.cube(world.cube)
        return status.assignment_epoch == epoch and status.assignment == assignment

    wait_for("the new assignment stands", is_assigned, 180)
    assert epoch is not None
    return epoch


def plan(world: World, assignment: dict[str, tuple[int, ...]]) -> int:
    """Have a move planned, and return its epoch."""
    request = ReassignRequest(assignment=assignment, warm_up=True)
    epoch = world.services.coordinator.reassign(world.cube, request).planned_epoch
    assert epoch is not None
    return epoch


def stands(world: World, epoch: int) -> bool:
    try:
        return world.services.coordinator.cube(world.cube).assignment_epoch == epoch
    except RtolapError:  # its coordinator was killed, and leads again soon
        return False


def is_warming(world: World, process: str, move: str) -> bool:
    return any("warming up" in line for line in said_of(world, process, move))


def said_of(world: World, process: str, move: str) -> list[str]:
    """Return the lines in the log of a process that have the id of a move."""
    lines = (world.services.folder / f"{process}.log").read_text(errors="replace").splitlines()
    return [line for line in lines if re.search(rf"\[.*\bmove={re.escape(move)}[ \]]", line)]


@pytest.mark.parametrize("held", HELD_ROWS)
def test_nobody_notices_a_move(
    world: World, kafka: str, held: int, record_property: Callable[[str, object], None]
) -> None:
    world.services.coordinator.reassign(
        world.cube, ReassignRequest(assignment={"old": tuple(range(PARTITIONS))}, warm_up=False)
    )
    with closing(Stream(world, kafka)) as stream:
        stream.produce(PARTITIONS)
        for _ in range(held // CHUNK):
            stream.produce(CHUNK)
        wanted = sum(stream.ends.values())

        def visible() -> bool:
            try:
                body = world.services.sql(f"SELECT COUNT(*) FROM {world.cube}")
            except httpx.HTTPError:
                return False
            return int(body["rows"][0][0] or 0) >= wanted

        wait_for("all that is held is visible", visible, 180)
        stream.start()
        asking = Asking(world)
        asking.start()
        wait_for("answers come", lambda: len(asking.answered_s) > 50)
        gaps = {}
        for name, assignment in {
            "split": {"new": (2, 3), "old": (0, 1)},
            "back": {"old": (0, 1, 2, 3)},
        }.items():
            begun_s = time.monotonic()
            moved = f"{world.cube}@{move(world, assignment)}"
            stood_s, before = time.monotonic(), len(asking.answered_s)
            wait_for("answers go on", lambda at=before: len(asking.answered_s) > at + 100)
            coordinator, receiver = (said_of(world, each, moved) for each in ("coordinator-0", "n0"))
            assert any("warms up for" in line for line in coordinator), (moved, coordinator)
            assert name == "back" or any("warming up" in line for line in receiver), (moved, receiver)
            gaps[name] = (stood_s - begun_s, asking.largest_gap_s(begun_s, asking.answered_s[-1]))
        asking.stop()
    print(f"{held} held rows, (duration, largest gap) in s: {gaps}, {len(asking.answered_s)} answers")
    record_property("gaps", str(gaps))
    assert not asking.wrong, asking.wrong[:3]
    assert not asking.errors, asking.errors[:3]
    assert all(gap_s < GAP_S_MAX for _, gap_s in gaps.values()), gaps


@pytest.mark.parametrize("seed", range(1))
def test_answers_stay_exact_whoever_is_killed_at_whatever_moment_of_a_move(
    world: World, kafka: str, seed: int
) -> None:
    """Statements are asked ahead all the time. A killed process costs answers while it is away, never a wrong
    one, and the move goes on."""
    dice = random.Random(seed)
    services = world.services
    everything = tuple(range(PARTITIONS))
    services.coordinator.reassign(world.cube, ReassignRequest(assignment={"old": everything}, warm_up=False))
    assignments = ({"new": (2, 3), "old": (0, 1)}, {"new": everything}, {"old": everything})
    with closing(Stream(world, kafka)) as stream:
        for _ in range(10):
            stream.produce(CHUNK)
        stream.start()
        asking = Asking(world)
        asking.start()
        wait_for("answers come", lambda: len(asking.answered_s) > 20, 180)
        for assignment in assignments:
            victim, moment = dice.choice(VICTIMS), dice.choice(MOMENTS)
            epoch = plan(world, assignment)
            moved = f"{world.cube}@{epoch}"
            warms = "n0" if "new" in assignment else "o0"
            if moment == "warming up":
                wait_for("it warms up", partial(is_warming, world, warms, moved))
            elif moment == "stands":
                wait_for("the assignment stands", partial(stands, world, epoch), 180)
            services.kill(victim)
            services.start_again(victim)
            what = f"seed {seed}: the move ends though {victim} was killed, {moment}"
            wait_for(what, partial(stands, world, epoch), 180)
            before = len(asking.answered_s)
            wait_for(f"{what}: answers go on", lambda at=before: len(asking.answered_s) > at + 20, 180)
            assert not asking.wrong, (what, asking.wrong[:3])
        asking.stop()
    assert not asking.wrong, asking.wrong[:3]
