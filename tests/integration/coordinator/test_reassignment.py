"""Partitions change hands between real receivers, which are killed meanwhile, under queries all the time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rtolap.model.segment import segment_of
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.builders import WINDOW_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.query.asked_statements import statements
from tests.support.query.many_clients import ManyClients
from tests.support.query.world_asker import Asker
from tests.support.scrape import scrape
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0", "o1"), "new": ("n0", "n1")}
CLIENTS = 50
OUTAGES = 5  # three moves, and two receivers that are killed


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    create_topic(unique_name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    one = World(services, kafka, unique_name, 11, SETS, visitors=True)
    with closing(services), closing(one):
        services.start_coordinators()
        one.start_receivers("old")
        services.start_query("--queries-max", str(2 * CLIENTS), "--queries-per-user-max", str(2 * CLIENTS))
        one.declare()
        yield one


def rebalance(world: World, *options: str) -> dict[str, object]:
    """`rtolap receivers rebalance` as a process."""
    command = ("rtolap.cli.main", "receivers", "rebalance", world.cube, "--at-once", *options, "--json")
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=world.services.environment,
        capture_output=True,
        text=True,
        timeout=patience_s(150),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_answers_stay_exact_while_partitions_move_and_receivers_are_killed(world: World) -> None:
    services, client = world.services, world.services.coordinator
    world.produce(400)
    wait_for("the first events are visible", world.caught_up, 90)
    _fifty_clients_at_once(world)
    asker = Asker(world, seed=11, every_s=0.02)
    asker.start()

    world.start_receivers("new")
    world.wait_for_receivers()
    plan = rebalance(world, "--dry-run")
    assert (plan["applied"], plan["after"]) == (False, {"new": [2, 3], "old": [0, 1]})
    assert client.cube(world.cube).assignment == {"old": (0, 1, 2, 3)}

    # A replica set is added; one of its receivers is killed as it begins to read.
    assert client.reassign(world.cube, ReassignRequest(warm_up=False)).applied
    services.kill("n0")
    world.produce(200)
    wait_for("the new owner has caught up", world.caught_up, 90)
    services.start_again("n0")

    # The old one gives up the rest; one of its receivers is killed as it lets go.
    client.reassign(world.cube, ReassignRequest(replica_sets=("new",), warm_up=False))
    services.kill("o0")
    world.produce(200)
    wait_for("the new owner has caught up again", world.caught_up, 90)
    services.start_again("o0")

    # And back, before anything of it is in history.
    back = rebalance(world, "--over", "old", "--over", "new", "--yes", "--wait-s", "90")
    assert back["applied"] is True
    world.produce(200)
    wait_for("all events are visible", world.caught_up, 90)
    asker.wait_for_all()
    asker.stop()

    assert services.ended() == []
    asker.assert_exact()
    asker.assert_few_errors(OUTAGES)
    _parts_of_all_owners_join(world)


def _fifty_clients_at_once(world: World) -> None:
    """While events come; what they ask is read once for those who wait together."""
    asked = [each for each in statements(world.cube, random.Random(11)) if each.kind != "join"][:3]
    with ManyClients(world, asked, CLIENTS) as clients:
        for _ in range(3):
            world.produce(100)
            clients.wait_for_all()
    clients.assert_exact()
    metrics = scrape(world.services.query_url, TOKEN)
    assert metrics("rtolap_query_reads_joined_total", cube=world.cube) > 0


def _parts_of_all_owners_join(world: World) -> None:
    """Every segment is staged without gap or overlap, by whoever had its partitions when it was closed."""
    client = world.services.coordinator
    last = max(e.segment_ms for log in world.log.values() for e in log if e is not None)
    client.close_segment(world.cube, segment_of(last, WINDOW_MS).name)

    def staged() -> bool:
        found = client.segments(world.cube)
        return bool(found) and all(segment.state == "REMOTE_PERSISTED" for segment in found)

    wait_for("all segments are staged", staged, 90)
    owners = {part.replica_set for segment in client.segments(world.cube) for part in segment.parts}
    assert owners == {"old", "new"}
    assert world.ask() == (world.ends(), world.expected(world.ends()))
