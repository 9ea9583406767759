"""Real receivers of several replica sets agree on the first groups of a cube, in rounds."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.protocols.coordinator.messages import ReassignRequest
from rtolap.protocols.query.messages import STATEMENT_HEADER

from tests.support.cubes.builders import START_MS
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import TOKEN, Services, wait_for

pytestmark = [pytest.mark.integration]

SETS = {"left": ("r0",), "right": ("r1",)}
KINDS = 12_000  # fewer than 10 000 are read as a whole
SPREAD = 24  # kinds that are large in all, and first nowhere
FIRST = 10


@pytest.fixture
def world(
    tmp_path: Path, zookeeper: str, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[World]:
    name = unique_name.replace("__", "_")  # two are reserved in names of tables
    create_topic(name, PARTITIONS)
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{name}", kafka=kafka, coordinators=1)
    services.environment["RTOLAP_LOG_LEVEL"] = "DEBUG"
    one = World(services, kafka, name, 5, SETS)
    with closing(services), closing(one):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


def produced(world: World, kafka: str) -> Counter[str]:
    """Send events whose kinds are unlike from partition to partition; return how many there are of each."""
    draw = random.Random(11)
    counts: Counter[str] = Counter()
    producer = KafkaProducer(kafka, client_id="test")
    for partition in range(PARTITIONS):
        kinds = [f"k{number}" for number in range(KINDS)]
        for number in range(FIRST):
            kinds += [f"only-{partition}-{number}"] * (60 + number)
        for number in range(SPREAD):
            kinds += [f"spread-{number}"] * (draw.randint(20, 40) + number)
        draw.shuffle(kinds)
        counts.update(kinds)
        values = [json.dumps({"ts": START_MS + at % 1000, "kind": kind}) for at, kind in enumerate(kinds)]
        producer.produce(world.cube, [OutRecord(each.encode(), partition=partition) for each in values])
    producer.flush(60)
    return counts


def test_receivers_of_two_replica_sets_agree_on_the_first_groups(world: World, kafka: str) -> None:
    counts = produced(world, kafka)
    halves = dict(zip(SETS, ((0, 1), (2, 3)), strict=True))  # each replica set has a part of every group
    world.services.coordinator.reassign(world.cube, ReassignRequest(assignment=halves, warm_up=False))

    def visible() -> bool:
        try:
            ((rows,),) = world.services.sql(f"SELECT COUNT(*) FROM {world.cube}")["rows"]
        except httpx.HTTPStatusError:
            return False
        return int(rows) == counts.total()

    wait_for("all events are visible", visible, 90)
    sql = f"SELECT kind, COUNT(*) AS n FROM {world.cube} GROUP BY kind ORDER BY n DESC, kind LIMIT {FIRST}"
    with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
        answer = http.post(f"{world.services.query_url}/api/v1/query", json={"sql": sql})
    answer.raise_for_status()
    expected = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:FIRST]
    assert [(kind, int(n)) for kind, n in answer.json()["rows"]] == expected
    assert all(kind.startswith("spread-") for kind, _ in expected), "what is first nowhere is first in all"
    statement = answer.headers[STATEMENT_HEADER]
    for (receiver,) in SETS.values():
        text = (world.services.folder / f"{receiver}.log").read_text(errors="replace")
        rounds = re.findall(rf"flight_server: do_get.*statement={statement}\b", text)
        assert len(rounds) >= 2, (receiver, rounds)  # its first groups, then its parts of the others' first
