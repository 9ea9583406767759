"""`KafkaConnections` without Kafka: one broker stands for all clusters, and everything is allowed."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.kafka.memory.broker import MemoryBroker
from rtolap.kafka.memory.producer import MemoryAdmin, MemoryProducer


class MemoryConnections:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def producer(self, cluster: str) -> MemoryProducer:
        return MemoryProducer(self._broker)

    def admin(self, cluster: str) -> MemoryAdmin:
        return MemoryAdmin(self._broker)

    def check_rights(self, cluster: str, needs: Iterable[object]) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""
