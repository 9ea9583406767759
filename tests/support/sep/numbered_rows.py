"""Rows that are written to a real HBase with numbers that grow, and the records that a topic has of them."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from rtolap.model.subscription import (
    CellColumn,
    HBaseSource,
    RowColumn,
    Subscription,
    SubscriptionListener,
)

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.hbase.client_pb2 import MutationProto

ROWS = [b"%02d" % number for number in range(40)]


class Record(NamedTuple):
    value: dict[str, object]
    headers: dict[str, bytes]

    @property
    def is_late(self) -> bool:
        return self.headers["late"] == b"1"


class Topic:
    """Everything that is committed in a topic, as it comes."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.records: list[Record] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=20).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def poll(self) -> int:
        for message in self._consumer.consume(10_000, 0.1):
            assert message.error() is None, message.error()
            value, headers = message.value(), dict(message.headers() or ())
            assert value is not None
            sent = {str(name): bytes(text) for name, text in headers.items() if isinstance(text, bytes)}
            self.records.append(Record(json.loads(value), sent))
        return len(self.records)

    def counts_by_row(self) -> dict[bytes, list[int]]:
        """Return the numbers of each row, as they came. Late ones of a region have to be flagged, and
        sequence ids have the order of the writes, whichever regions the row was in."""
        rows: dict[bytes, list[int]] = defaultdict(list)
        largest: dict[tuple[bytes, bytes], int] = defaultdict(int)
        by_id: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for record in self.records:
            row, number = str(record.value["row"]).encode(), int(str(record.value["n"]))
            place = row, record.headers["region"]
            assert record.is_late or number > largest[place], (place, number, rows[row])
            largest[place] = max(number, largest[place])
            rows[row].append(number)
            by_id[row].append((int(record.headers["sequence_id"]), number))
        for row, pairs in by_id.items():
            numbers = [number for _, number in sorted(pairs)]
            assert numbers == sorted(numbers), (row, numbers)
        return rows

    def close(self) -> None:
        self._consumer.close()


class Writer:
    """Writes a number that grows with each write of its row."""

    def __init__(self, client: HBaseClient, table: str, random: Random) -> None:
        self.written = dict.fromkeys(ROWS, 0)
        self._client, self._table, self._random = client, table, random

    def write(self, count: int) -> None:
        for _ in range(count):
            rows = self._random.sample(ROWS, self._random.randint(1, 5))
            self._client.write_all(self._table, [self._put(row) for row in rows])

    def _put(self, row: bytes) -> MutationProto:
        self.written[row] += 1
        return mutations.put(row, {"cf:n": struct.pack(">q", self.written[row])})

    @property
    def total(self) -> int:
        return sum(self.written.values())


def subscription_of(name: str, table: str, hbase: str) -> Subscription:
    return Subscription(
        name=name,
        source=HBaseSource(zookeeper=hbase),
        listener=SubscriptionListener("kafka", topic=f"{name}_changes"),
        tables={table: ("cf",)},
        row=RowColumn("row", "string"),
        columns={"n": CellColumn("cf:n", "long")},
    )
