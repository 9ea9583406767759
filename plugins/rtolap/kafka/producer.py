"""Kafka through confluent-kafka: the producer and the small administration that the product needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from rtolap.base.errors import DefinitionError, NotFound, RtolapError, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.errors import close_client, plain, translated
from rtolap.kafka.interfaces import Delivered, OutRecord
from rtolap.kafka.topic_lookup import fetch_topic_id
from rtolap.model.offsets import Offsets

_FULL_QUEUE_WAIT_S = 60.0
_CLOSE_FLUSH_S = 5.0
_REQUEST_TIMEOUT_S = 15.0
_NEW_PARTITION_WAIT_S = 5.0
_LEADER_WAIT_S = 15.0  # a topic that was created a moment ago has no leader yet
_LEADER_RETRY_S = 0.2
_UNKNOWN = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


class KafkaProducer:
    """The StreamProducer of librdkafka: idempotent, acks=all, with at most 200 000 records or 64 MiB that
    wait."""

    def __init__(self, cluster: KafkaCluster | str, *, client_id: str = "rtolap") -> None:
        self._failed: KafkaError | None = None
        self._cluster = KafkaCluster.of(cluster)
        self._producer = self._cluster.open(
            Producer,
            {
                "client.id": client_id,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 0,  # an outage of any length drops nothing: `flush` tells what waits
                "compression.type": "lz4",
                "message.max.bytes": 4 << 20,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 65_536,
                "allow.auto.create.topics": False,
                "topic.metadata.propagation.max.ms": 5_000,  # then a topic that is not there is not there
                "on_delivery": self._on_delivery,
            },
        )

    def produce(
        self, topic: str, records: Sequence[OutRecord], *, delivered: Delivered | None = None
    ) -> None:
        headers: list[tuple[str, bytes]] = []
        headers_of: Mapping[str, bytes] | None = None  # records of a list may share them
        for record in records:
            options: dict[str, Any] = {}
            if delivered is not None:
                options["on_delivery"] = partial(_tell, self._cluster, topic, record, delivered)
            if record.partition is not None:
                options["partition"] = record.partition
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            if record.headers:
                if record.headers is not headers_of:
                    headers_of, headers = record.headers, list(record.headers.items())
                options["headers"] = headers
            self._queue(topic, record, options)
        self.poll()
        self._raise_failed()

    def poll(self) -> None:
        try:
            plain(self._producer.poll, 0)
        except KafkaException as error:
            raise translated("produce to", "a topic", error, self._cluster) from error

    def flush(self, timeout_s: float) -> None:
        try:
            left = plain(self._producer.flush, timeout_s)
        except KafkaException as error:
            raise translated("produce to", "a topic", error, self._cluster) from error
        self._raise_failed()
        if left:
            raise Unavailable(
                "Kafka has not acknowledged everything",
                expected="0 records waiting",
                found=left,
                action="retry",
            )

    def close(self) -> None:
        """Give up what is still queued after a short flush."""
        close_client("a producer", lambda: self._producer.flush(_CLOSE_FLUSH_S))

    def _queue(self, topic: str, record: OutRecord, options: dict[str, Any]) -> None:
        started = time.monotonic()
        while True:
            try:
                self._producer.produce(topic, value=record.value, key=record.key, **options)
                return
            except BufferError as error:
                if time.monotonic() > started + _FULL_QUEUE_WAIT_S:
                    raise Unavailable(
                        f"the producer's queue stayed full for {_FULL_QUEUE_WAIT_S:.0f} s", found=topic
                    ) from error
                self._producer.poll(0.1)
            except KafkaException as error:
                late = time.monotonic() > started + _NEW_PARTITION_WAIT_S
                if late or not self._may_be_new(topic, error.args[0].code()):
                    raise translated("produce to", topic, error, self._cluster) from error
                self._producer.poll(0.05)

    def _may_be_new(self, topic: str, code: int) -> bool:
        """Return True if the cached metadata was too old: it knows no partition, and no topic, that was made
        a moment ago. It is read again."""
        if code not in _UNKNOWN:
            return False
        try:
            metadata = self._producer.list_topics(topic, timeout=_NEW_PARTITION_WAIT_S).topics.get(topic)
        except KafkaException as error:
            raise translated("produce to", topic, error, self._cluster) from error
        return metadata is not None and metadata.error is None

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error

    def _raise_failed(self) -> None:
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise translated("produce to", "a topic", error, self._cluster)


def _tell(
    cluster: KafkaCluster,
    topic: str,
    record: OutRecord,
    delivered: Delivered,
    error: KafkaError | None,
    _message: Message,
) -> None:
    delivered(record, None if error is None else translated("produce to", topic, error, cluster))


def _retrying(passing: type[RtolapError]) -> Retrying:
    """Return a policy that retries while a new topic gets its leaders and becomes known to all brokers."""
    return Retrying(
        retry=retry_if_exception_type(passing),
        stop=stop_after_delay(_LEADER_WAIT_S),
        wait=wait_fixed(_LEADER_RETRY_S),
        reraise=True,
    )


class KafkaAdmin:
    """The TopicAdmin of a Kafka cluster."""

    def __init__(self, cluster: KafkaCluster | str) -> None:
        self._cluster = KafkaCluster.of(cluster)
        self._admin = self._cluster.open(AdminClient, {})

    def create_topic(
        self, topic: str, partitions: int, *, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> bool:
        new = NewTopic(topic, partitions, replication, config=dict(config or {}))
        futures = self._admin.create_topics([new], request_timeout=_REQUEST_TIMEOUT_S)
        try:
            futures[topic].result(_REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise translated("create", topic, error, self._cluster) from error
        # the controller has made it; the broker that is asked next may not have heard of it yet
        _retrying(NotFound)(self.partitions, topic)
        return True

    def delete_topic(self, topic: str) -> None:
        self._wait(
            self._admin.delete_topics([topic], request_timeout=_REQUEST_TIMEOUT_S)[topic], "delete", topic
        )

    def add_partitions(self, topic: str, total: int) -> None:
        new = NewPartitions(topic, total)
        futures = self._admin.create_partitions([new], request_timeout=_REQUEST_TIMEOUT_S)
        self._wait(futures[topic], "grow", topic)

    def partitions(self, topic: str) -> list[int]:
        described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_TIMEOUT_S)
        description = self._wait(described[topic], "describe", topic)
        return sorted(partition.id for partition in description.partitions)

    def topic_id(self, topic: str) -> str:
        return fetch_topic_id(self._admin, topic, _REQUEST_TIMEOUT_S, self._cluster)

    def offsets(self, topic: str, which: str) -> Offsets:
        specs: dict[str, Any] = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
        if which not in specs:
            raise DefinitionError("no such offset", expected="earliest or latest", found=repr(which))
        return _retrying(Unavailable)(self._offsets, topic, specs[which]())

    def _offsets(self, topic: str, spec: OffsetSpec) -> Offsets:
        requested = {TopicPartition(topic, partition): spec for partition in self.partitions(topic)}
        futures = self._admin.list_offsets(requested, request_timeout=_REQUEST_TIMEOUT_S)
        return {
            where.partition: int(self._wait(future, "list offsets of", topic).offset)
            for where, future in futures.items()
        }

    def delete_records(self, topic: str, before: Offsets) -> None:
        requested = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for future in self._admin.delete_records(requested, request_timeout=_REQUEST_TIMEOUT_S).values():
            self._wait(future, "trim", topic)

    def close(self) -> None:
        """Do nothing: the client's threads end with the object."""

    def _wait(self, future: Future[Any], verb: str, topic: str) -> Any:
        try:
            return future.result(_REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise translated(verb, topic, error, self._cluster) from error
        except TimeoutError as error:
            raise Unavailable(f"cannot {verb} {topic}", found="no answer in time", action="retry") from error
