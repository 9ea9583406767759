"""A cube whose records carry watermarks: the producers stand for hosts, on real Kafka and processes.

Two producers write to both partitions of a topic. A window waits for the one that is behind; a predecessor of
it that is still alive and says more is not believed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import msgspec
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.model.application import CubeWatermark
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.messages import SegmentInfo
from rtolap.watermark.records.producer import WatermarkedProducer

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.day_stream import declare_cube
from tests.support.cubes.services import Services, wait_for
from tests.support.watermarks.definitions import hosts_source

pytestmark = [pytest.mark.integration]

PARTITIONS = 2
FAR_MS = START_MS + 3 * WINDOW_MS


class Store:
    """A producer, and the watermark of its application as it knows it."""

    def __init__(self, kafka: str, topic: str, name: str, generation: int) -> None:
        self.watermark_ms = START_MS
        self.topic = topic
        self.out = WatermarkedProducer(
            KafkaProducer(kafka),
            KafkaAdmin(kafka),
            topic,
            name=name,
            generation=generation,
            watermark_ms=lambda: self.watermark_ms,
            every_s=None,
        )

    def write(self, count: int, from_ms: int) -> None:
        """Events a second apart, spread over the partitions."""
        bodies = [{"ts": from_ms + 1000 * n, "kind": "a", "amount": 1} for n in range(count)]
        records = [
            OutRecord(json.dumps(body).encode(), partition=n % PARTITIONS) for n, body in enumerate(bodies)
        ]
        self.out.produce(self.topic, records)
        self.out.flush(30)

    def states(self, watermark_ms: int) -> None:
        """In every partition, and in the log when this returns."""
        self.watermark_ms = watermark_ms
        self.out.state_watermark()
        self.out.flush(30)


class Cube:
    def __init__(self, services: Services, kafka: str, name: str) -> None:
        self.client, self.kafka, self.name = services.coordinator, kafka, name
        self.stores: list[Store] = []
        schema = small_schema(name=name, table=name, watermark=CubeWatermark(name, "results", "cubes"))
        table = msgspec.structs.replace(schema.table, name=name, topic=name, watermark_records="header")
        self.client.create_application(
            {
                "name": name,
                "sources": [hosts_source("results")],
                "sinks": [{"name": "cubes"}],
                "edges": [["results", "cubes"]],
            }
        )
        self.client.change_hosts(name, "results", "register", ["store-0", "store-1"])
        declare_cube(self.client, table, schema.cube)

    def store(self, name: str, generation: int) -> Store:
        self.stores.append(Store(self.kafka, self.name, name, generation))
        return self.stores[-1]

    def known_ms(self, store: str) -> int | None:
        """How far the server has been told that it is, in all partitions."""
        found = self.client.application_hosts(self.name, "results").behind
        return next((one.latest_ms for one in found if one.host == store), None)

    def segment(self, number: int) -> SegmentInfo:
        start_ms = START_MS + number * WINDOW_MS
        return self.client.segment(self.name, SegmentRange(start_ms, start_ms + WINDOW_MS).name)


@pytest.fixture
def cube(
    tmp_path_factory: pytest.TempPathFactory,
    zookeeper: str,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[Cube]:
    folder, root = tmp_path_factory.mktemp("services"), f"/by-producers-{uuid.uuid4().hex}"
    services = Services(folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1)
    made: Cube | None = None
    try:
        services.start_coordinators()
        services.start_receiver("r0", "only", "--checkpoint-interval-s", "1")
        services.coordinator.put_replica_set("only", ["r0"])
        wait_for("the receiver lives", lambda: len(services.coordinator.receivers()) == 1)
        create_topic(unique_name, PARTITIONS)
        made = Cube(services, kafka, unique_name)
        yield made
    finally:
        for store in made.stores if made is not None else ():
            store.out.close()
        services.close()


def test_a_window_waits_for_a_producer_and_believes_no_predecessor_of_it(cube: Cube) -> None:
    predecessor, store, other = cube.store("store-0", 1), cube.store("store-0", 2), cube.store("store-1", 1)
    half_ms = START_MS + WINDOW_MS // 2
    predecessor.write(10, START_MS)
    store.write(10, START_MS)
    other.write(10, START_MS + WINDOW_MS)
    store.states(half_ms)
    predecessor.states(FAR_MS)
    other.states(FAR_MS)  # behind the predecessor's words in each partition
    wait_for("both are read so far", lambda: cube.known_ms("store-1") == FAR_MS, timeout_s=120)
    assert cube.known_ms("store-0") == half_ms
    assert cube.segment(0).state == "ACTIVE"

    store.write(10, half_ms)
    store.states(START_MS + WINDOW_MS + WINDOW_MS // 2)
    wait_for(
        "the first window is uploaded", lambda: cube.segment(0).state == "REMOTE_PERSISTED", timeout_s=120
    )
    closed = cube.segment(0)
    assert closed.staged_events == 30, "every event of the window, and no control record"
    assert closed.completeness is not None
    assert (closed.completeness.closed_by, closed.completeness.bound_ppm) == ("watermark", 0)
    assert cube.segment(1).state == "ACTIVE", "its producer is in the middle of it"
