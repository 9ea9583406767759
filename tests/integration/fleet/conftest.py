"""Real brokers.

brokers      three of them, shared by this package: tests of it kill none
own_brokers  three for one test, which may kill them
fleet_world  the administration contract's world on `brokers`
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
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


@pytest.fixture(scope="package")
def brokers(java: JavaArtifacts, server_folder: Path) -> Iterator[Brokers]:
    with Brokers(server_folder / "fleet", java) as started:
        yield started


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
