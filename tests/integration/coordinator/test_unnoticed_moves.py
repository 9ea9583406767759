"""Partitions move between real receivers, and a client that asks all the time is never without an answer."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import Refused
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.coordinator.messages import ReassignRequest

from tests.support.cubes.builders import START_MS, WINDOW_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration]

SETS = {"old": ("o0",), "new": ("n0",)}
GAP_S_MAX = 1.0
HELD_ROWS = (0, 1_000_000)
CHUNK = 5_000
PAUSE_S = 0.02


class Stream:
    """Events that nothing rolls up: each has a place of its own. The amount of an event is its offset."""

    def __init__(self, world: World, kafka: KafkaCluster | str) -> None:
        self._cube = world.cube
        self._producer = KafkaProducer(kafka, client_id="stream")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def produce(self, count: int) -> None:
        records = []
        for number in range(count):
            partition = number % PARTITIONS
            at = self.ends[partition]
            place = at * PARTITIONS + partition
            body = {"ts": START_MS + place % (WINDOW_MS // 2), "kind": "a", "place": place, "amount": at}
            records.append(OutRecord(json.dumps(body).encode(), partition=partition))
            self.ends[partition] = at + 1
        self._producer.produce(self._cube, records)
        self._producer.flush(60)

    def start(self) -> None:
        self._thread.start()

    def _go_on(self) -> None:
        while not self._stopping.wait(0.05):
            self.produce(20)

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._producer.close()


class Asking(threading.Thread):
    """A client that asks again as soon as it has an answer. `answered_s` and `wrong` are for after `stop`."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world = world
        self._sql = f"SELECT COUNT(*), SUM(amount) FROM {world.cube}"
        self._stopping = threading.Event()
        self._before: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.answered_s: list[float] = []
        self.errors: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            try:
                body = self._world.services.sql(self._sql)
            except httpx.HTTPError as error:
                self.errors.append(str(error))
                continue
            self.answered_s.append(time.monotonic())
            positions = {int(p): at for p, at in body["positions"][self._world.cube].items()}
            expected = [sum(positions.values()), sum(at * (at - 1) // 2 for at in positions.values())]
            found = [int(cell or 0) for cell in body["rows"][0]]
            went_on = all(positions.get(p, 0) >= at for p, at in self._before.items())
            if found != expected or not went_on:
                self.wrong.append(f"{found} for {expected} at {positions} after {self._before}")
            self._before = positions

    def stop(self) -> None:
        self._stopping.set()
        self.join(patience_s(60))
        assert not self.is_alive(), "a query hangs"

    def largest_gap_s(self, from_s: float, to_s: float) -> float:
        """Return the longest time without an answer between these times."""
        inside = [at for at in self.answered_s if from_s <= at <= to_s]
        edges = [from_s, *inside, to_s]
        return max(after - before for before, after in itertools.pairwise(edges))


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


def move(world: World, assignment: dict[str, tuple[int, ...]]) -> None:
    """Move, refuse another move meanwhile, and wait until it has ended."""
    client = world.services.coordinator
    planned = client.reassign(world.cube, ReassignRequest(assignment=assignment, warm_up=True))
    assert not planned.applied
    epoch = planned.planned_epoch
    again = client.reassign(world.cube, ReassignRequest(assignment=assignment, warm_up=True))
    if client.cube(world.cube).next_epoch == epoch:
        assert again.planned_epoch == epoch
        with pytest.raises(Refused, match=f"another move of cube {world.cube} runs"):
            client.reassign(world.cube, ReassignRequest(assignment={"new": tuple(range(PARTITIONS))}))

    def stands() -> bool:
        status = client.cube(world.cube)
        return status.assignment_epoch == epoch and status.assignment == assignment

    wait_for("the new assignment stands", stands, 180)


@pytest.mark.parametrize("held", HELD_ROWS)
def test_nobody_notices_a_move(
    world: World, kafka: str, held: int, record_property: Callable[[str, object], None]
) -> None:
    world.services.coordinator.reassign(
        world.cube, ReassignRequest(assignment={"old": tuple(range(PARTITIONS))})
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
            move(world, assignment)
            stood_s, before = time.monotonic(), len(asking.answered_s)
            wait_for("answers go on", lambda at=before: len(asking.answered_s) > at + 100)
            gaps[name] = (stood_s - begun_s, asking.largest_gap_s(begun_s, asking.answered_s[-1]))
        asking.stop()
    print(f"{held} held rows, (duration, largest gap) in s: {gaps}, {len(asking.answered_s)} answers")
    record_property("gaps", str(gaps))
    assert not asking.wrong, asking.wrong[:3]
    assert not asking.errors, asking.errors[:3]
    assert all(gap_s < GAP_S_MAX for _, gap_s in gaps.values()), gaps
