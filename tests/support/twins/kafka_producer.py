"""The producer and the administration of Kafka in memory (`broker`), and the connections that open them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from rtolap.base.errors import DefinitionError, NotFound, Refused, RtolapError, Unavailable
from rtolap.kafka.interfaces import Delivered, OutRecord
from rtolap.model.offsets import Offsets

from tests.support.twins.kafka_broker import Log, MemoryBroker


class MemoryProducer:
    """The twin of StreamProducer."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._failed: RtolapError | None = None

    def produce(
        self, topic: str, records: Sequence[OutRecord], *, delivered: Delivered | None = None
    ) -> None:
        if self._broker.down:
            raise Unavailable(f"the broker does not answer for topic {topic}", action="retry")
        for record in records:
            error: RtolapError | None = None
            try:
                self._broker.append(topic, record)
            except (NotFound, Refused) as refusal:
                error = refusal
            if delivered is not None:
                delivered(record, error)
            elif error is not None:
                self._failed = error

    def poll(self) -> None:
        """Do nothing: everything is reported already."""

    def flush(self, timeout_s: float) -> None:
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Do nothing: nothing is open."""


class MemoryAdmin:
    """The twin of TopicAdmin."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def create_topic(
        self, topic: str, partitions: int, *, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> bool:
        return self._broker.create(topic, partitions, config)

    def delete_topic(self, topic: str) -> None:
        self._broker.delete(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        with self._broker.changed:
            logs = self._broker.logs(topic)
            if total <= len(logs):
                raise Refused(f"{topic} has {len(logs)} partitions already", expected=f"more than {total}")
            logs.extend(Log() for _ in range(total - len(logs)))
            self._broker.changed.notify_all()

    def partitions(self, topic: str) -> list[int]:
        with self._broker.changed:
            return list(range(len(self._broker.logs(topic))))

    def topic_id(self, topic: str) -> str:
        with self._broker.changed:
            return self._broker.topic_id(topic)

    def offsets(self, topic: str, which: str) -> Offsets:
        if which not in ("earliest", "latest"):
            raise DefinitionError("no such offset", expected="earliest or latest", found=repr(which))
        with self._broker.changed:
            logs = self._broker.logs(topic)
            return {at: log.start if which == "earliest" else log.end for at, log in enumerate(logs)}

    def delete_records(self, topic: str, before: Offsets) -> None:
        with self._broker.changed:
            logs = self._broker.logs(topic)
            for partition, offset in before.items():
                log = logs[partition]
                log.start = max(log.start, min(offset, log.end))
                first = bisect.bisect_left(log.offsets, log.start)
                del log.offsets[:first]
                del log.records[:first]

    def close(self) -> None:
        """Do nothing: nothing is open."""


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
        """Do nothing: nothing is open."""
