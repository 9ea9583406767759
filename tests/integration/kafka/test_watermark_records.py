"""Statements through a real broker: the producer's contract, headers, order and a broker that dies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord, StreamProducer
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.stack.process import ManagedProcess
from rtolap.watermark.records.producer import WatermarkedProducer
from rtolap.watermark.records.statement import Statement, decode

from tests.support.cubes.stream_contract import StreamContract, World, until

pytestmark = pytest.mark.integration

PARTITIONS = 3


class Mark:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        self.ms += 1
        return self.ms


def watermarked(kafka: str, topic: str, mark: Mark, every_s: float | None) -> WatermarkedProducer:
    return WatermarkedProducer(
        KafkaProducer(kafka),
        KafkaAdmin(kafka),
        topic,
        name="store-0",
        generation=3,
        watermark_ms=mark,
        every_s=every_s,
    )


@pytest.fixture
def world(kafka: str, unique_name: str, world_of: Callable[[StreamProducer], World]) -> World:
    return world_of(watermarked(kafka, unique_name, Mark(), every_s=None))


class TestKafkaWatermarkedProducer(StreamContract):
    pass


def statements_of(consumer: KafkaConsumer, ended: int) -> dict[int, list[Statement]]:
    """By partition, in order, until so many partitions have ended."""
    found: dict[int, list[Statement]] = {partition: [] for partition in range(PARTITIONS)}

    def complete() -> bool:
        batch = consumer.poll(10_000, 0.2)
        assert batch.statements is not None
        for partition, text in zip(batch.partitions.tolist(), batch.statements, strict=True):
            found[partition].append(decode(text or b""))
        return sum(bool(said) and said[-1].kind == "end" for said in found.values()) == ended

    until(complete, "the ends")
    return found


def test_statements_arrive_in_order_whoever_produces_and_though_the_broker_dies(
    kafka: str, kafka_server: ManagedProcess, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    out = watermarked(kafka, topic, Mark(), every_s=0.02)

    def produce(partition: int) -> None:
        for number in range(500):
            record = OutRecord(json.dumps({"n": number}).encode(), partition=partition, headers={"a": b"b"})
            out.produce(topic, [record], event_ms=[number])

    threads = [threading.Thread(target=produce, args=(partition,)) for partition in (0, 0, 1)]
    for thread in threads:
        thread.start()
    kafka_server.kill()
    try:
        until(lambda: out.problem is not None, "the outage is seen")
    finally:
        kafka_server.start()
    for thread in threads:
        thread.join()
    out.flush(30)
    assert out.oldest_unacknowledged_ms() is None
    out.close()
    consumer = KafkaConsumer(kafka, topic, with_statements=True)
    consumer.assign(dict.fromkeys(range(PARTITIONS), 0))
    found = statements_of(consumer, ended=PARTITIONS)
    consumer.close()
    for said in found.values():
        marks = [one.watermark_ms or 0 for one in said]
        assert marks == sorted(marks), "over retries too"
        assert {(one.generation, one.producer) for one in said} == {(3, "store-0")}
        assert [one.kind for one in said].count("end") == 1
    data = [sum(one.kind == "data" for one in said) for said in found.values()]
    assert data == [1000, 500, 0], "none lost, none twice"


def test_a_partition_that_is_added_is_told_the_watermark(
    kafka: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=1)
    out = watermarked(kafka, topic, Mark(), every_s=0.1)
    KafkaAdmin(kafka).add_partitions(topic, 2)
    consumer = KafkaConsumer(kafka, topic, with_statements=True)
    until(lambda: consumer.partitions() == [0, 1], "the new partition")
    consumer.assign({1: 0})
    until(lambda: len(consumer.poll(100, 0.2)) > 0, "its control record")
    consumer.close()
    out.close()
