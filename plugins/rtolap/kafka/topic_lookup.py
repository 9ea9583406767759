"""The broker's description of one topic: its id, its partitions and what their logs hold."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient

from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.epoch_lookup import EpochLookup
from rtolap.kafka.errors import GONE_TOPIC, close_client, translated
from rtolap.kafka.interfaces import EpochEnd, LogRange
from rtolap.kafka.settings import consumer_settings

_NO_ID = str(Uuid(0, 0))  # of a broker, or a topic's metadata, older than topic ids


def fetch_topic_id(admin: AdminClient, topic: str, timeout_s: float, cluster: KafkaCluster) -> str:
    """Do as `StreamConsumer.topic_id`."""
    futures = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
    try:
        topic_id = str(futures[topic].result(timeout_s).topic_id)
    except KafkaException as error:
        raise translated("report the id of", topic, error, cluster) from error
    except TimeoutError as error:
        raise Unavailable(
            f"Kafka did not report the id of topic {topic}", found="no answer in time", action="retry"
        ) from error
    return "" if topic_id == _NO_ID else topic_id


class TopicLookup:
    """A lookup of topics that keeps the contract of `consumer.StreamConsumer`. It is thread-safe.

    It has a client of its own, which reads nothing: a look-up waits for a client that another thread polls,
    and one that polls without a pause is never free.
    """

    def __init__(self, cluster: KafkaCluster, client_id: str, topic: str) -> None:
        self._consumer = cluster.open(Consumer, consumer_settings(client_id))
        self._cluster = cluster
        self._admin: AdminClient | None = None  # many consumers read a range only, and ask no id
        self._admin_lock = Lock()
        self._epochs: EpochLookup | None = None
        self._epochs_lock = Lock()
        self._client_id = client_id
        self._topic = topic

    def log_range(self, partition: int, timeout_s: float) -> LogRange:
        try:
            offsets = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=timeout_s, cached=False
            )
        except KafkaException as error:
            if error.args[0].code() in GONE_TOPIC:
                raise self.gone() from error
            raise self.unavailable("report its offsets", error) from error
        except RuntimeError as error:  # closed by another thread meanwhile
            raise self.unavailable("report its offsets", error) from error
        if offsets is None:
            raise self.unavailable("report its offsets", "no answer in time")
        return LogRange(*offsets)

    def partitions(self, timeout_s: float) -> list[int]:
        try:
            topics = self._consumer.list_topics(self._topic, timeout=timeout_s).topics
        except KafkaException as error:
            raise self.unavailable("report its partitions", error) from error
        except RuntimeError as error:  # closed by another thread meanwhile
            raise self.unavailable("report its partitions", error) from error
        described = topics.get(self._topic)
        if described is None or not described.partitions:
            reason = described.error if described is not None else None
            if reason is None or reason.code() in GONE_TOPIC:
                raise self.gone()
            raise self.unavailable("report its partitions", reason)
        return sorted(described.partitions)

    def topic_id(self, timeout_s: float) -> str:
        with self._admin_lock:
            if self._admin is None:
                self._admin = self._cluster.open(AdminClient, {})
            admin = self._admin
        try:
            return fetch_topic_id(admin, self._topic, timeout_s, self._cluster)
        except Unavailable:
            # it asks the broker that its metadata name as the controller, and keeps to a dead one until
            # they are five minutes old
            with self._admin_lock:
                if self._admin is admin:
                    self._admin = None
            raise

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float) -> dict[int, EpochEnd]:
        if not epochs:
            return {}
        with self._epochs_lock:
            if self._epochs is None:
                self._epochs = EpochLookup(self._cluster, self._client_id, self._topic, timeout_s)
            return self._epochs.ends(epochs)

    def close(self) -> None:
        close_client(f"the look-up of {self._topic}", self._consumer.close)
        with self._epochs_lock:
            if self._epochs is not None:
                self._epochs.close()

    def gone(self) -> NotFound:
        return NotFound(
            f"there is no topic {self._topic}",
            action="create it, or mend the table's topic; it may have been deleted",
        )

    def unavailable(self, action: str, error: object) -> Unavailable:
        return Unavailable(
            f"Kafka could not {action} for topic {self._topic}", found=str(error), action="retry"
        )
