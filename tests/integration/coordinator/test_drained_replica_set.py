"""A replica set of real receivers is drained and removed while a client asks all the time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rtolap.base.errors import Refused
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.moves.asked_stream import Asking, Stream
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0",), "new": ("n0",)}
GAP_S_MAX = 1.0


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=1)
    one = World(services, kafka, name, 5, SETS)
    with closing(services), closing(one):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


def receivers(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`rtolap receivers` as a process."""
    return subprocess.run(
        [sys.executable, "-m", "rtolap.cli.main", "receivers", *arguments],
        env=world.services.environment,
        capture_output=True,
        text=True,
        timeout=patience_s(200),
        check=False,
    )


def test_a_replica_set_is_drained_and_removed_and_nobody_notices(
    world: World, kafka: str, record_property: Callable[[str, object], None]
) -> None:
    client = world.services.coordinator
    client.reassign(world.cube, ReassignRequest(assignment={"old": (0, 1, 2), "new": (3,)}, warm_up=False))
    with closing(Stream(world, kafka)) as stream:
        stream.produce(10 * PARTITIONS)
        wait_for("all owners serve", lambda: client.cube(world.cube).catching_up == (), 90)
        stream.start()
        asking = Asking(world)
        asking.start()
        wait_for("answers come", lambda: len(asking.answered_s) > 50)
        refused = receivers(world, "remove-set", "old")
        assert refused.returncode == 1
        assert f"partitions of {world.cube}" in refused.stderr
        refused = receivers(world, "remove", "o0")
        assert "the last living one" in refused.stderr

        begun_s = time.monotonic()
        done = receivers(world, "drain", "old", "--yes", "--wait-s", str(patience_s(120)), "--json")
        assert done.returncode == 0, done.stderr
        drained_s = time.monotonic()
        assert json.loads(done.stdout) == {
            "replica_set": "old",
            "draining": True,
            "cubes_max": 1,
            "cubes": [],
        }
        assert client.cube(world.cube).assignment == {"new": (0, 1, 2, 3)}
        with pytest.raises(Refused, match="living receivers"):
            client.remove_replica_set("old")
        world.services.stop("o0", patience_s(60))

        def removed() -> bool:
            try:
                client.remove_replica_set("old")
            except Refused:  # its session has yet to expire
                return False
            return True

        wait_for("the replica set is removed", removed)
        before = len(asking.answered_s)
        wait_for("answers go on", lambda: len(asking.answered_s) > before + 100)
        asking.stop()
        gap_s = asking.largest_gap_s(begun_s, asking.answered_s[-1])
    ends = dict(stream.ends)
    record_property("gaps", f"drained in {drained_s - begun_s:.1f} s, largest gap {gap_s:.2f} s")
    print(f"drained in {drained_s - begun_s:.1f} s, {gap_s:.2f} s, {len(asking.answered_s)} answers")
    assert not asking.wrong, asking.wrong[:3]
    assert not asking.errors, asking.errors[:3]
    assert gap_s < GAP_S_MAX
    assert [found.name for found in client.replica_sets()] == ["new"]
    assert [found.receiver_id for found in client.receivers()] == ["n0"]

    def recounted() -> bool:
        body = world.services.sql(f"SELECT COUNT(*), SUM(amount) FROM {world.cube}")
        expected = [sum(ends.values()), sum(end * (end - 1) // 2 for end in ends.values())]
        return [int(cell) for cell in body["rows"][0]] == expected

    wait_for("every event that was sent is counted once", recounted, 60)
