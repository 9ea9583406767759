"""Partitions that are far behind are read apart, on a real broker: the same contract, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from rtolap.kafka.catch_up import CatchUpBounds, CatchUpConsumer
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord, StreamProducer
from rtolap.kafka.producer import KafkaProducer

from tests.support.catch_up import EAGER
from tests.support.cubes.stream_contract import StreamContract, World
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

_BACKLOG, _LIVE = 200_000, 4_000
_DEADLINE_S = 60.0


@pytest.fixture
def world(kafka: str, world_of: Callable[[StreamProducer], World]) -> World:
    world = world_of(KafkaProducer(kafka))
    open_one = world.consumer
    world.consumer = lambda topic: CatchUpConsumer(lambda: open_one(topic), EAGER)
    return world


class TestKafkaStreamReadApart(StreamContract):
    pass


def test_a_backlog_is_read_apart_until_it_is_over_and_each_record_comes_once(
    kafka: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=3)
    producer = KafkaProducer(kafka)
    records = [OutRecord(b"%d" % number, partition=0) for number in range(_BACKLOG)]
    producer.produce(topic, records)
    producer.flush(_DEADLINE_S)
    bounds = CatchUpBounds(behind_records=20_000, near_records=1_000, looks=2, look_every_s=0.02)
    consumer = CatchUpConsumer(lambda: KafkaConsumer(kafka, topic), bounds)
    consumer.assign({0: 0, 1: 0, 2: 0})
    read = {partition: [] for partition in range(3)}
    were_apart: list[frozenset[int]] = []
    sent, deadline_s = 0, time.monotonic() + patience_s(_DEADLINE_S)
    while (total := sum(len(part) for parts in read.values() for part in parts)) < _BACKLOG + 2 * _LIVE:
        assert time.monotonic() < deadline_s, f"{total} records, {consumer.broker_error}"
        if sent < _LIVE:
            producer.produce(topic, [OutRecord(b"live", partition=partition) for partition in (1, 2)] * 40)
            sent += 40
        batch = consumer.poll(2_000, 0.05)
        for partition in np.unique(batch.partitions).tolist():
            read[partition].append(batch.offsets[batch.partitions == partition])
        if not were_apart or were_apart[-1] != consumer.apart:
            were_apart.append(consumer.apart)
    for partition, count in ((0, _BACKLOG), (1, _LIVE), (2, _LIVE)):
        assert np.array_equal(np.concatenate(read[partition]), np.arange(count))
    assert consumer.position() == {0: _BACKLOG, 1: _LIVE, 2: _LIVE}
    assert frozenset({0}) in were_apart
    while consumer.apart:
        assert time.monotonic() < deadline_s
        consumer.poll(10, 0.01)
    consumer.close()
    producer.close()
