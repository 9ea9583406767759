"""The two servers that all integration tests stand on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from rtolap.stack.process import ManagedProcess, ProcessState


@pytest.mark.integration
def test_zookeeper_keeps_its_data_over_a_kill(zookeeper_server: ManagedProcess, unique_name: str) -> None:
    client = KazooClient(hosts=zookeeper_server.address, timeout=5)
    client.start(timeout=10)
    try:
        client.create(f"/{unique_name}", b"kept")
        zookeeper_server.kill()
        assert zookeeper_server.state() is ProcessState.CRASHED
        zookeeper_server.start()
        value, _ = client.retry(client.get, f"/{unique_name}")
        assert value == b"kept"
    finally:
        client.stop()
        client.close()


@pytest.mark.integration
def test_kafka_keeps_its_messages_over_a_kill(
    kafka_server: ManagedProcess, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka_server.address, "acks": "all"})
    producer.produce(topic, b"before", partition=1)
    assert producer.flush(30) == 0
    kafka_server.kill()
    kafka_server.start()
    producer.produce(topic, b"after", partition=1)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka_server.address, "group.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 1, 0)])
        messages = consumer.consume(2, timeout=30)
        assert [message.value() for message in messages] == [b"before", b"after"]
    finally:
        consumer.close()
