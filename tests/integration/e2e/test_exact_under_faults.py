"""Two replica sets of two, two coordinators, real Kafka, ZooKeeper and Spark; everything is killed in turn.

A seeded set of statements (roll-ups, conditions on time and on values, distinct counts, joins with a lookup)
is asked all the time, over HTTP and by the MySQL protocol in turn. Each answer must equal the plain recount
of a prefix of every partition; prefixes never get shorter. In the end, over the history that Spark has built,
each is asked at both once more, and history equals the recount of everything.
The seed, the test's parameter, chooses events and the order of faults. One is run, RTOLAP_SEEDS=3 runs
three, and with `-k "[2]"` only the second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from rtolap.base.errors import RtolapError
from rtolap.model.segment import segment_of
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.builders import WINDOW_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.query.world_asker import Asker
from tests.support.seeds import so_many

pytestmark = [pytest.mark.integration, pytest.mark.e2e]

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
SETS = {"left": ("l0", "l1"), "right": ("r0", "r1")}
FAULTS = ("receiver", "coordinator", "kafka", "zookeeper", "spark")
SEEDS = so_many(1)
OUTAGES = 3  # coordinators and Spark are not on the way of a statement


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[World]:
    create_topic(unique_name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka)
    one = World(services, kafka, unique_name, request.getfixturevalue("seed"), SETS, visitors=True)
    with closing(services), closing(one):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_answer_is_a_recount_of_a_prefix(
    world: World, seed: int, kafka_server: ManagedProcess, zookeeper_server: ManagedProcess
) -> None:
    services, client = world.services, world.services.coordinator
    faults = list(FAULTS)
    random.Random(seed).shuffle(faults)
    world.produce(300)
    wait_for("the first events are visible", world.caught_up, 90)
    asker = Asker(world, seed=seed)
    asker.start()
    for fault in faults:
        world.produce(150)
        match fault:
            case "receiver":
                leader = next(r.receiver_id for r in client.receivers() if r.is_leader)
                (follower,) = next(set(names) - {leader} for names in SETS.values() if leader in names)
                services.kill(leader)
                world.produce(100)
                wait_for("the follower leads", partial(_leads, client, follower), 60)
                services.start_again(leader)
            case "coordinator":
                leading = services.leading_coordinator()
                assert leading is not None
                services.kill(leading)
                world.produce(100)
                wait_for("the standby leads", lambda: services.leading_coordinator() is not None, 60)
                services.start_again(leading)
            case "kafka":
                kafka_server.kill()
                kafka_server.start()
            case "zookeeper":
                zookeeper_server.kill()
                world.produce(50)
                zookeeper_server.start()
            case "spark":
                wait_for("something can be built", lambda: _can_build(client), 90)
                services.build_queue(JOBS, kill_at="read")
                services.build_queue(JOBS)
        asker.wait_for_more()
    wait_for("all events are visible", world.caught_up, 120)
    _all_into_history(world)
    asker.wait_for_all()
    asker.stop()

    assert services.ended() == []
    asker.assert_exact()
    asker.assert_few_errors(OUTAGES)
    positions, answer = world.ask()
    assert positions == world.ends()
    assert answer == world.expected(positions)
    world.assert_varied()
    segments = client.segments(world.cube)
    assert max(segment.version for segment in segments) > 1, "late events were merged by a later build"
    history = sum(segment.events or 0 for segment in segments)
    assert history == sum(e is not None for events in world.log.values() for e in events)

    fragments, staged = services.folder / "receivers", services.folder / "store" / "staged"
    wait_for("receivers have dropped their copies", lambda: not list(fragments.rglob("*.fragment")))
    client.cleanup(world.cube)
    assert not list(staged.rglob("*.parquet")), "what is in history is staged no more"
    assert world.ask() == (positions, answer)


def _leads(client: CoordinatorClient, receiver_id: str) -> bool:
    try:
        return any(one.receiver_id == receiver_id and one.is_leader for one in client.receivers())
    except RtolapError:
        return False


def _can_build(client: CoordinatorClient) -> bool:
    try:
        return any(entry.waits_for is None for entry in client.queue().entries)
    except RtolapError:
        return False


def _all_into_history(world: World) -> None:
    """Close what is open, build, and go on until nothing of the cube is outside history."""
    services, client = world.services, world.services.coordinator
    total = sum(e is not None for events in world.log.values() for e in events)
    starts = {e.segment_ms for es in world.log.values() for e in es if e is not None}

    def one_round() -> bool:
        try:
            client.close_segment(world.cube, segment_of(max(starts), WINDOW_MS).name)
            services.build_queue(JOBS)
            return sum(s.events or 0 for s in client.segments(world.cube)) == total
        except RtolapError:
            return False

    wait_for("everything is in history", one_round, 300)
