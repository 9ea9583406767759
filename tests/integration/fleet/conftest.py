"""Real brokers.

brokers      three of them, shared by this package: tests of it kill none. Those that use them come first, and
             with the last of them they end: three that nobody asks take a seventh of a processor
own_brokers  three for one test, which may kill them
fleet_world  the administration contract's world on `brokers`
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import Partition
from rtolap.stack.artifacts import JavaArtifacts

from tests.support.fleet.administration_contract import World
from tests.support.fleet.brokers import Brokers
from tests.support.kafka_topics import create_topic

_LAST = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    places = [place for place, item in enumerate(items) if here in item.path.parents]
    ordered = sorted((items[place] for place in places), key=lambda item: not _shares(item))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item
    config.stash[_LAST] = next((item.nodeid for item in reversed(ordered) if _shares(item)), "")


def _shares(item: pytest.Item) -> bool:
    return "brokers" in getattr(item, "fixturenames", ())


class SharedBrokers:
    """They start when they are first asked for, and again where they have been stopped."""

    def __init__(self, folder: Path, java: JavaArtifacts) -> None:
        self._folder = folder
        self._java = java
        self._opened = ExitStack()
        self._brokers: Brokers | None = None

    def started(self) -> Brokers:
        if self._brokers is None:
            folder = tempfile.mkdtemp(dir=self._folder, prefix="fleet-")
            self._brokers = self._opened.enter_context(Brokers(Path(folder), self._java))
        return self._brokers

    def stop(self) -> None:
        self._opened.close()
        self._brokers = None


@pytest.fixture(scope="package")
def shared_brokers(java: JavaArtifacts, server_folder: Path) -> Iterator[SharedBrokers]:
    shared = SharedBrokers(server_folder, java)
    yield shared
    shared.stop()


@pytest.fixture
def brokers(shared_brokers: SharedBrokers, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    yield shared_brokers.started()
    if request.node.nodeid == request.config.stash[_LAST]:
        shared_brokers.stop()


@pytest.fixture
def own_brokers(java: JavaArtifacts) -> Iterator[Brokers]:
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-fleet-") as folder,
        Brokers(Path(folder), java) as started,
    ):
        yield started


@pytest.fixture
def fleet_world(brokers: Brokers, unique_name: str) -> Iterator[World]:
    world = world_of(brokers, unique_name)
    yield world
    world.administration.close()


def world_of(brokers: Brokers, name: str) -> World:
    producer = Producer(
        {"bootstrap.servers": brokers.cluster.servers, "acks": "all", "linger.ms": 5, "log_level": 0}
    )
    numbers = count()

    def create(replicas: Sequence[Sequence[int]]) -> str:
        topic = f"{name}_{next(numbers)}"
        assignment = [list(of_partition) for of_partition in replicas]
        new = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment)
        create_topic(brokers.cluster.servers, new)
        return topic

    def fill(partition: Partition, size_bytes: int) -> None:
        value = bytes(range(256)) * 40
        for _ in range(size_bytes // len(value) + 1):
            producer.produce(partition.topic, value, partition=partition.number)
        assert producer.flush(60) == 0

    def commit(group: str, partition: Partition, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": brokers.cluster.servers, "group.id": group})
        at = TopicPartition(partition.topic, partition.number, offset)
        consumer.commit(offsets=[at], asynchronous=False)
        consumer.close()

    def write(partition: Partition) -> None:
        idempotent = Producer({"bootstrap.servers": brokers.cluster.servers, "enable.idempotence": True})
        idempotent.produce(partition.topic, b"record", partition=partition.number)
        assert idempotent.flush(60) == 0

    return World(KafkaAdministration(brokers.cluster), create, fill, lambda: None, commit, write)
