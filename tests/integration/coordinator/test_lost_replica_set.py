"""All receivers of a replica set are killed; others get its partitions after the declared time, by whoever
leads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.moves.asked_stream import Asking, Stream
from tests.support.waiting import SLOWNESS

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0", "o1"), "new": ("n0",)}
# These tests wait for all of it. A receiver that is started again is back in less on any machine.
LOST_AFTER_S = 10.0 * min(SLOWNESS, 2.0)


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=2)
    services.environment["RTOLAP_REPLICA_SET_LOST_AFTER_S"] = str(LOST_AFTER_S)
    one = World(services, kafka, name, 7, SETS)
    with closing(services), closing(one):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


def recounted(world: World, ends: dict[int, int]) -> bool:
    """Return True if every event below these offsets is counted once."""
    try:
        body = world.services.sql(f"SELECT COUNT(*), SUM(amount) FROM {world.cube}")
    except httpx.HTTPError:
        return False
    expected = [sum(ends.values()), sum(end * (end - 1) // 2 for end in ends.values())]
    return [int(cell or 0) for cell in body["rows"][0]] == expected


def test_partitions_of_a_lost_replica_set_are_answered_by_others(
    world: World, kafka: str, record_property: Callable[[str, object], None]
) -> None:
    client, services = world.services.coordinator, world.services
    client.reassign(world.cube, ReassignRequest(assignment={"old": (0, 1, 2), "new": (3,)}, warm_up=False))
    with closing(Stream(world, kafka)) as stream:
        stream.produce(50 * PARTITIONS)
        wait_for("all owners serve", lambda: client.cube(world.cube).catching_up == (), 90)
        stream.start()
        asking = Asking(world)
        asking.start()
        wait_for("answers come", lambda: len(asking.answered_s) > 20)

        # one receiver that is left keeps all: the replica set is not lost
        services.kill("o0")
        before = len(asking.answered_s)
        wait_for("its replica answers", lambda: len(asking.answered_s) > before + 20)
        services.kill("o1")
        killed_s = time.monotonic()

        def missing() -> bool:
            return any(found.missing_since_ms is not None for found in client.replica_sets())

        wait_for("a leader has seen it", missing)
        assert client.cube(world.cube).assignment["old"] == (0, 1, 2), "its time is not over"
        leader = services.leading_coordinator()
        assert leader is not None
        services.kill(leader)
        wait_for("another one leads", lambda: services.leading_coordinator() not in (None, leader))

        def moved() -> bool:
            return client.cube(world.cube).assignment == {"new": (0, 1, 2, 3)}

        wait_for("others have its partitions", moved, 60 + LOST_AFTER_S)
        moved_s = time.monotonic()
        before = len(asking.answered_s)
        wait_for("they answer", lambda: len(asking.answered_s) > before + 20, 90)
        status = client.cube(world.cube)
        assert status.assigned_because.startswith("no receiver of replica set old had lived since ")
        assert moved_s - killed_s >= LOST_AFTER_S

        services.start_again("o0")
        services.start_again("o1")
        wait_for("it is back", lambda: not missing())
        before = len(asking.answered_s)
        wait_for("answers go on", lambda: len(asking.answered_s) > before + 50)
        asking.stop()
        ends = stream.ends
    print(f"{moved_s - killed_s:.1f} s until others have the partitions, {len(asking.answered_s)} answers")
    record_property("moved_s", f"{moved_s - killed_s:.1f}")
    assert not asking.wrong, asking.wrong[:3]
    assert client.cube(world.cube).assignment == {"new": (0, 1, 2, 3)}
    wait_for("every event is counted once", lambda: recounted(world, ends), 60)


def test_a_replica_set_that_comes_back_in_time_keeps_its_partitions(world: World, kafka: str) -> None:
    client, services = world.services.coordinator, world.services
    client.reassign(world.cube, ReassignRequest(assignment={"old": (0, 1, 2), "new": (3,)}, warm_up=False))
    with closing(Stream(world, kafka)) as stream:
        stream.produce(50 * PARTITIONS)
        ends = dict(stream.ends)
    wait_for("all is counted", lambda: recounted(world, ends), 90)
    epoch = client.cube(world.cube).assignment_epoch
    for name in SETS["old"]:
        services.kill(name)
    wait_for("a leader has seen it", lambda: any(s.missing_since_ms for s in client.replica_sets()))
    begun_s = time.monotonic()
    services.start_again("o1")
    wait_for("it is back", lambda: not any(s.missing_since_ms for s in client.replica_sets()))
    wait_for("all is counted again", lambda: recounted(world, ends), 90)
    wait_for("its time would be over", lambda: time.monotonic() > begun_s + LOST_AFTER_S + 2, 90)
    status = client.cube(world.cube)
    assert (status.assignment_epoch, status.next_epoch) == (epoch, None)


def test_a_strict_policy_refuses_a_second_receiver_on_a_machine(world: World) -> None:
    services = world.services
    strict = {"RTOLAP_PLACEMENT": "strict", "RTOLAP_MACHINE": "m1"}
    folder = str(services.folder / "receivers")
    for name in ("s0", "s1"):
        arguments = ("receiver", "serve", "--id", name, "--replica-set", "apart", "--port", "0")
        services.start(name, *arguments, "--data-dir", f"{folder}/{name}", env=strict)
        if name == "s0":
            wait_for(
                "the first lives",
                lambda: any(one.receiver_id == "s0" for one in services.coordinator.receivers()),
            )
    wait_for("the second has ended", lambda: "s1" in services.ended())
    said = (services.folder / "s1.log").read_text()
    assert "receivers of replica set apart stand in one place" in said
    assert "s0, s1 share machine m1" in said
    assert "s0" in services.running()
    [apart] = [found for found in services.coordinator.replica_sets() if found.name == "apart"]
    assert apart.receivers == ("s0",)
