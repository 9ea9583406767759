"""The stream contract's world on real Kafka, around a producer of the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import StreamConsumer, StreamProducer
from rtolap.kafka.producer import KafkaAdmin

from tests.support.cubes.stream_contract import World


@pytest.fixture
def world_of(kafka: str, unique_name: str) -> Iterator[Callable[[StreamProducer], World]]:
    """It closes the producer and every consumer."""
    opened: list[KafkaConsumer] = []
    producers: list[StreamProducer] = []

    def consumer(topic: str) -> StreamConsumer:
        opened.append(KafkaConsumer(kafka, topic, client_id="contract"))
        return opened[-1]

    def abort_a_transaction(topic: str, partition: int) -> None:
        other = Producer({"bootstrap.servers": kafka, "transactional.id": unique_name})
        other.init_transactions(20)
        other.begin_transaction()
        other.produce(topic, b"aborted", partition=partition)
        other.flush(20)
        other.abort_transaction(20)

    def make(producer: StreamProducer) -> World:
        producers.append(producer)
        return World(unique_name, KafkaAdmin(kafka), producer, consumer, abort_a_transaction)

    yield make
    for producer in producers:
        producer.close()
    for each in opened:
        each.close()
