"""The transactional producer of Kafka in memory (`broker`): what it sends is there at once and whole."""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.base.errors import NotLeader, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.transactions import OutColumns

from tests.support.twins.kafka_broker import MemoryBroker


class MemoryTransactionalProducer:
    """The twin of TransactionalProducer."""

    def __init__(self, broker: MemoryBroker, transactional_id: str) -> None:
        self._broker = broker
        self._id = transactional_id
        self._epoch = 0

    def begin(self, timeout_s: float) -> None:
        self._answering()
        self._epoch = self._broker.begin_epoch(self._id)

    def send(self, columns: Sequence[OutColumns], timeout_s: float) -> None:
        self._answering()
        records = [(each.topic, record) for each in columns for record in _records(each)]
        with self._broker.changed:
            if self._broker.epoch(self._id) != self._epoch:
                raise NotLeader(f"another process writes under {self._id} now")
            for topic, record in records:
                self._broker.check(topic, record)
            for topic, record in records:
                self._broker.append(topic, record)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _answering(self) -> None:
        if self._broker.down:
            raise Unavailable(f"the broker does not answer {self._id}", action="retry")


def _records(columns: OutColumns) -> list[OutRecord]:
    headers = columns.headers or [[] for _ in columns.values]
    return [
        OutRecord(value, key=key, partition=columns.partition, headers=dict(pairs))
        for key, value, pairs in zip(columns.keys, columns.values, headers, strict=True)
    ]
