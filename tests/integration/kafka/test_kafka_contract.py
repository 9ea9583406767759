from collections.abc import Callable

import pytest
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord, StreamProducer
from rtolap.kafka.producer import KafkaProducer
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.stream_contract import StreamContract, World, read, until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(kafka: str, world_of: Callable[[StreamProducer], World]) -> World:
    return world_of(KafkaProducer(kafka))


class TestKafkaStream(StreamContract):
    pass


def test_headers_keys_and_create_times_reach_the_consumer(
    kafka: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(config={"retention.ms": "-1"})  # the record is from 1970
    producer = KafkaProducer(kafka)
    producer.produce(topic, [OutRecord(b"a", key=b"k", headers={"reason": b"empty"}, timestamp_ms=1234)])
    producer.flush(20)
    consumer = KafkaConsumer(kafka, topic, with_create_ms=True)
    consumer.assign({0: 0})
    created: list[int] = []
    until(lambda: bool(created) or bool(created.extend(_created(consumer))), "the record")
    assert created == [1234]
    consumer.close()


def test_a_killed_broker_is_ridden_out_without_loss_or_repetition(
    kafka_server: ManagedProcess, world: World
) -> None:
    world.admin.create_topic(world.topic, 1)
    world.produce(0, b"a", b"b")
    consumer = world.consumer(world.topic)
    consumer.assign({0: 0})
    read(consumer, 2)
    kafka_server.kill()
    try:
        until(lambda: len(consumer.poll(10, 0.2)) == 0 and consumer.broker_error is not None, "trouble")
    finally:
        kafka_server.start()
    world.produce(0, b"c")
    assert read(consumer, 1) == {0: [(2, b"c")]}
    assert consumer.broker_error is None


def _created(consumer: KafkaConsumer) -> list[int]:
    stamps = consumer.poll(10, 0.2).create_ms
    assert stamps is not None
    return [int(stamp) for stamp in stamps]
