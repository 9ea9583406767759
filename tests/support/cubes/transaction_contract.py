"""The contract of transactional producers: subclass, give a `transactions` fixture, run with pytest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from rtolap.base.errors import NotFound, NotLeader, TooLarge
from rtolap.kafka.interfaces import StreamConsumer, TopicAdmin
from rtolap.kafka.transactions import OutColumns, TransactionalProducer

from tests.support.cubes.stream_contract import DEADLINE_S, read


@dataclass
class Transactions:
    """`name` is unused: for topics, and as a transactional id. `open` takes an id."""

    name: str
    admin: TopicAdmin
    open: Callable[[str], TransactionalProducer]
    consumer: Callable[[str], StreamConsumer]

    def begun(self) -> TransactionalProducer:
        producer = self.open(self.name)
        producer.begin(DEADLINE_S)
        return producer

    def values(self, topic: str, count: int) -> list[bytes | None]:
        consumer = self.consumer(topic)
        consumer.assign({0: 0})
        values = [value for _, value in read(consumer, count).get(0, [])]
        assert len(consumer.poll(10, 0.3)) == 0
        return values


def column(topic: str, *values: bytes) -> OutColumns:
    return OutColumns(topic, [b"k"] * len(values), list(values), [[("n", b"1")] for _ in values])


class TransactionContract:
    def test_records_of_several_topics_are_there_in_order(self, transactions: Transactions) -> None:
        one, other = f"{transactions.name}-1", f"{transactions.name}-2"
        for topic in (one, other):
            transactions.admin.create_topic(topic, 1)
        producer = transactions.begun()
        producer.send([column(one, b"a", b"b"), OutColumns(other, [None], [b"x"], partition=0)], DEADLINE_S)
        producer.send([column(one, b"c")], DEADLINE_S)
        assert transactions.values(one, 3) == [b"a", b"b", b"c"]
        assert transactions.values(other, 1) == [b"x"]

    def test_a_refused_record_keeps_all_out_and_the_producer_goes_on(
        self, transactions: Transactions
    ) -> None:
        one, other = f"{transactions.name}-1", f"{transactions.name}-2"
        transactions.admin.create_topic(one, 1)
        transactions.admin.create_topic(other, 1, config={"max.message.bytes": "1000"})
        producer = transactions.begun()
        with pytest.raises(TooLarge):
            producer.send([column(one, b"a"), column(other, os.urandom(5000))], DEADLINE_S)
        producer.send([column(one, b"b"), column(other, b"x")], DEADLINE_S)
        assert transactions.values(one, 1) == [b"b"]
        assert transactions.values(other, 1) == [b"x"]

    def test_a_missing_topic_is_not_found_and_nothing_is_written(self, transactions: Transactions) -> None:
        one = f"{transactions.name}-1"
        transactions.admin.create_topic(one, 1)
        producer = transactions.begun()
        with pytest.raises(NotFound):
            producer.send([column(one, b"a"), column(f"{transactions.name}-missing", b"x")], DEADLINE_S)
        producer.send([column(one, b"b")], DEADLINE_S)
        assert transactions.values(one, 1) == [b"b"]

    def test_whoever_begins_with_the_id_shuts_its_predecessor_out(self, transactions: Transactions) -> None:
        topic = f"{transactions.name}-1"
        transactions.admin.create_topic(topic, 1)
        first = transactions.begun()
        first.send([column(topic, b"a")], DEADLINE_S)
        second = transactions.begun()
        with pytest.raises(NotLeader):
            first.send([column(topic, b"b")], DEADLINE_S)
        second.send([column(topic, b"c")], DEADLINE_S)
        assert transactions.values(topic, 2) == [b"a", b"c"]
