from collections.abc import Callable

import numpy as np
import pytest
from rtolap.base.errors import Unavailable
from rtolap.kafka.catch_up import CatchUpConsumer
from rtolap.kafka.interfaces import OutRecord, StreamConsumer

from tests.support.catch_up import EAGER
from tests.support.cubes.stream_contract import StreamContract, World
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_producer import MemoryAdmin, MemoryProducer


def memory_world(consumer: Callable[[MemoryBroker, str], StreamConsumer]) -> World:
    broker = MemoryBroker()
    return World(
        topic="events",
        admin=MemoryAdmin(broker),
        producer=MemoryProducer(broker),
        consumer=lambda topic: consumer(broker, topic),
        gap=lambda topic, partition: broker.skip(topic, partition, 3),
    )


def read_apart(broker: MemoryBroker, topic: str) -> StreamConsumer:
    return CatchUpConsumer(lambda: MemoryConsumer(broker, topic), EAGER)


class TestMemoryStream(StreamContract):
    @pytest.fixture
    def world(self) -> World:
        return memory_world(MemoryConsumer)


class TestMemoryStreamReadApart(StreamContract):
    """All that is behind at all is read apart, as far as there are others."""

    @pytest.fixture
    def world(self) -> World:
        return memory_world(read_apart)


def test_a_broker_that_is_down_gives_empty_batches_until_it_is_back() -> None:
    broker = MemoryBroker()
    broker.create("events", 1)
    broker.append("events", OutRecord(b"a"))
    consumer = MemoryConsumer(broker, "events")
    consumer.assign({0: 0})
    broker.set_down(True)
    assert len(consumer.poll(10, 0.01)) == 0
    assert consumer.broker_error
    with pytest.raises(Unavailable):
        consumer.partitions()
    broker.set_down(False)
    assert consumer.poll(10, 0.01).values == [b"a"]
    assert consumer.broker_error is None


def test_create_times_come_along_when_asked_for() -> None:
    broker = MemoryBroker()
    broker.create("events", 1)
    broker.append("events", OutRecord(b"a", timestamp_ms=5))
    broker.append("events", OutRecord(b"b"))
    consumer = MemoryConsumer(broker, "events", with_create_ms=True)
    consumer.assign({0: 0})
    created = consumer.poll(10, 0).create_ms
    assert created is not None
    assert np.array_equal(created, [5, -1])
