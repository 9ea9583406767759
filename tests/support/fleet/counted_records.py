"""Numbered records that are written without end to a topic, and a recount of what stands in it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from rtolap.kafka.clusters import KafkaCluster

from tests.support.waiting import until

_PAUSE_S = 0.002


class RunningProducer:
    """Use as a context manager: one idempotent producer, a record a few milliseconds, round all partitions.

    `acknowledged`: numbers by partition. Leaving waits until all that was written is acknowledged.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int, value_bytes: int = 200) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.servers, "enable.idempotence": True, "linger.ms": 50}
        )
        self._topic = topic
        self._partitions = partitions
        self._padding = b"x" * value_bytes
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(partitions)}
        self.failed: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> RunningProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)
        left = self._producer.flush(60)
        assert left == 0, f"{left} records are not acknowledged"
        assert self.failed == []

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(_PAUSE_S):
            self._producer.produce(
                self._topic,
                b"%d:" % number + self._padding,
                partition=number % self._partitions,
                on_delivery=self._note,
            )
            self._producer.poll(0)
            number += 1

    def _note(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition()].append(number_of(message.value()))


class RunningConsumer:
    """Use as a context manager: reads what comes to the topic from now on. `read`: how often each number
    came, by partition."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int) -> None:
        self._consumer = _consumer(cluster, topic, partitions)
        self.read: dict[int, Counter[int]] = {number: Counter() for number in range(partitions)}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RunningConsumer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            messages: list[Any] = self._consumer.consume(500, 0.1)
            for message in messages:
                if message.error() is None and b":" in message.value()[:20]:
                    self.read[message.partition()][number_of(message.value())] += 1

    def has_all(self, acknowledged: dict[int, list[int]]) -> bool:
        return all(len(self.read[number]) >= len(numbers) for number, numbers in acknowledged.items())


@contextmanager
def recounted(cluster: KafkaCluster, topic: str, partitions: int, value_bytes: int = 200) -> Iterator[None]:
    """Write and read records meanwhile; in the end each that was acknowledged is there once."""
    consumer = RunningConsumer(cluster, topic, partitions)
    with consumer:
        with RunningProducer(cluster, topic, partitions, value_bytes) as producer:
            yield
        until(lambda: consumer.has_all(producer.acknowledged), "all that was acknowledged")
    for number, numbers in producer.acknowledged.items():
        assert len(numbers) > 10
        assert consumer.read[number] == dict.fromkeys(numbers, 1)


def number_of(value: bytes) -> int:
    return int(value.partition(b":")[0])


def _consumer(cluster: KafkaCluster, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": f"recount-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in range(partitions)
    ]
    consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
    return consumer
