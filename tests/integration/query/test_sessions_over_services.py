"""Clients that change between two query services of one cluster, whose receivers are not equally far."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from rtolap import dbapi
from rtolap.base.addresses import host_port
from rtolap.base.errors import Unavailable
from rtolap.protocols.receiver.client import ReceiverClient

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import TOKEN, Services, wait_for
from tests.support.seeds import so_many
from tests.support.waiting import result_of

pytestmark = [pytest.mark.integration]

RECEIVERS = ("r0", "r1")
CLIENTS = 4
ANSWERS = so_many(60)  # of each client
SHORT_MS = 1_500


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    create_topic(unique_name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{unique_name}", kafka=kafka, coordinators=1)
    one = World(services, kafka, unique_name, 3, {"both": RECEIVERS})
    with closing(services), closing(one):
        services.start_coordinators()
        one.start_receivers("both")
        services.start_query()
        services.start_further_query("other")
        one.declare()
        one.produce(300)
        wait_for("all is visible", one.caught_up, 90)
        yield one


def _receiver(world: World, name: str) -> ReceiverClient:
    info = next(r for r in world.services.coordinator.receivers() if r.receiver_id == name)
    return ReceiverClient(host_port(info.host, info.port), TOKEN)


def _position(world: World, receiver: str) -> int:
    with _receiver(world, receiver) as client:
        (cube,) = client.stats().cubes
        return sum(partition.position for partition in cube.partitions)


def _asked_first(world: World) -> tuple[str, str]:
    """The receiver that query services prefer, and the other."""
    first = world.services.sql(world.sql)["stats"][0]["receivers"]["both"]
    return first, next(name for name in RECEIVERS if name != first)


def _holding(connection: dbapi.Connection, world: World) -> dict[int, int]:
    cursor = connection.cursor().execute(world.sql)
    rows = {(row[0], row[1]): tuple(row[2:]) for row in cursor.fetchall()}
    positions = cursor.positions[world.cube]
    assert len(rows) == len(world.expected(positions))
    return positions


def test_an_answer_is_never_behind_what_another_service_has_answered(world: World) -> None:
    """One receiver stands still, the other dies after it has answered for more."""
    services = world.services
    further = services._url("other-http")
    first, second = _asked_first(world)
    with _receiver(world, second) as behind:
        # one that has just started may not serve the cube yet
        result_of(partial(behind.action, "pause", {"cube": world.cube}), Unavailable)
        stood_at = _position(world, second)
        world.produce(200)
        wait_for("the other one goes on", lambda: world.caught_up(), 90)
        with dbapi.connect(services.query_url, token=TOKEN) as one:
            before = _holding(one, world)
            token = one.session_token
        assert before == world.ends()
        services.kill(first)

        def with_token(timeout_ms: int) -> dict[int, int]:
            options = {"token": TOKEN, "timeout_ms": timeout_ms, "session_token": token}
            with dbapi.connect(further, **options) as connection:
                return _holding(connection, world)

        def backwards_without() -> bool:
            with dbapi.connect(further, token=TOKEN) as connection:
                try:
                    return sum(_holding(connection, world).values()) == stood_at < sum(before.values())
                except dbapi.OperationalError:
                    return False  # the receiver that was killed is still asked

        wait_for("a session without a token is answered as the receiver stands", backwards_without, 60)
        with pytest.raises(dbapi.OperationalError, match=r"answered before|longer than") as caught:
            with_token(SHORT_MS)
        assert caught.value.code in ("not_reached", "query_timeout")
        with closing(services.mysql("other")) as mysql, mysql.cursor() as cursor:
            cursor.execute(f"set max_execution_time = {SHORT_MS}, rtolap_session_token = '{token}'")
            with pytest.raises(Exception, match=r"answered before|longer than"):
                cursor.execute(world.sql)
        behind.action("resume", {"cube": world.cube})
        after = with_token(60_000)
        assert all(after[p] >= at for p, at in before.items())


@pytest.mark.seeded
def test_clients_that_hop_between_services_never_see_an_answer_go_backwards(world: World) -> None:
    services, urls = world.services, (world.services.query_url, world.services._url("other-http"))
    done = threading.Event()

    def change() -> None:
        """Events come, and the receivers stand still in turn, so that they are differently far."""
        random_ = random.Random(5)
        while not done.is_set():
            paused = random_.choice(RECEIVERS)
            with _receiver(world, paused) as receiver:
                # one that has just started may not serve the cube yet
                result_of(partial(receiver.action, "pause", {"cube": world.cube}), Unavailable)
                world.produce(random_.randrange(5, 40))
                done.wait(random_.random() / 4)
                receiver.action("resume", {"cube": world.cube})

    def hop(seed: int) -> int:
        random_, token, answered = random.Random(seed), "", 0
        seen: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        while answered < ANSWERS:
            with dbapi.connect(random_.choice(urls), token=TOKEN, session_token=token) as connection:
                for _ in range(random_.randrange(1, 4)):
                    positions = _holding(connection, world)
                    assert all(positions[p] >= at for p, at in seen.items()), (seed, seen, positions)
                    seen, answered = positions, answered + 1
                token = connection.session_token
        return answered

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        changing = threads.submit(change)
        try:
            answers = list(threads.map(hop, range(CLIENTS)))
        finally:
            done.set()
        changing.result(60)
    assert min(answers) >= ANSWERS
    assert services.ended() == []
