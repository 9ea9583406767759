"""Leader epochs of one topic's logs, asked of the leaders: OffsetForLeaderEpoch (KIP-320).

librdkafka validates positions with this request, and gives nobody else its answers; kafka-python has it.

    the answer                                    means
    an epoch and its end                          the leader's log has its records up to there
    no epoch (-1)                                 the leader knows no epoch as large: it is behind
    UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH     the metadata are older or newer than the leader
    a leader of a smaller epoch than was read     the metadata are stale

All but the first say nothing about the log: it is asked again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from rtolap.base.errors import DefinitionError, RtolapError, Unavailable
from rtolap.kafka.administration import requests
from rtolap.kafka.administration.connection import AdministrationConnection
from rtolap.kafka.administration.errors import raised, translated
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.interfaces import EpochEnd, TopicMissing

_ATTEMPT = "ask where leader epochs end"
_RIGHT = "Describe on the topic"
_NONE = -1
_UNKNOWN_TOPIC = 3
_FORBIDDEN = 29

log = logging.getLogger(__name__)


class EpochLookup:
    """It is used by one thread at a time. Raises as `StreamConsumer.epoch_ends`."""

    def __init__(self, cluster: KafkaCluster, client_id: str, topic: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._topic = topic
        self._connection: AdministrationConnection | None = None
        try:
            self._connection = AdministrationConnection(cluster, client_id, timeout_s)
        except DefinitionError as error:
            # kafka-python knows fewer ways to log in than librdkafka, which still validates by itself
            log.warning("leader epochs of topic %s cannot be compared: %s", topic, error)

    def ends(self, epochs: Mapping[int, int | None]) -> dict[int, EpochEnd]:
        """Return the ends by partition; of none where the cluster cannot be asked at all."""
        if self._connection is None:
            return {}
        leaders = self._leaders(self._connection, epochs)
        by_broker: dict[int, dict[int, int]] = defaultdict(dict)
        for partition, (broker, leader_epoch) in leaders.items():
            by_broker[broker][partition] = leader_epoch
        answers = self._connection.ask_each(
            {broker: partial(self._request, led, epochs) for broker, led in by_broker.items()},
            _ATTEMPT,
            _RIGHT,
        )
        found: dict[int, EpochEnd] = {}
        for answer in answers.values():
            if isinstance(answer, RtolapError):
                raise answer
            for topic in answer.topics:
                for one in topic.partitions:
                    found[one.partition] = self._end(one)
        if missing := sorted(epochs.keys() - found.keys()):
            raise self._unavailable(f"no answer for partitions {missing}")
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _leaders(
        self, connection: AdministrationConnection, epochs: Mapping[int, int | None]
    ) -> dict[int, tuple[int, int]]:
        """Return broker and leader epoch by partition."""
        answer = connection.ask(lambda: requests.metadata([self._topic]), "describe topics", _RIGHT)
        topic = next(iter(answer.topics), None)
        if topic is None or topic.error_code == _UNKNOWN_TOPIC:
            raise TopicMissing(self._topic)
        if topic.error_code:
            raise self._refused(topic.error_code)
        leaders: dict[int, tuple[int, int]] = {}
        for one in topic.partitions:
            if one.partition_index not in epochs:
                continue
            wanted = epochs[one.partition_index]
            if one.leader_id < 0 or (wanted is not None and one.leader_epoch < wanted):
                raise self._unavailable(
                    f"partition {one.partition_index}: leader {one.leader_id} of epoch {one.leader_epoch}, "
                    f"asked for epoch {wanted}"
                )
            leaders[one.partition_index] = (one.leader_id, one.leader_epoch)
        return leaders

    def _request(self, led: Mapping[int, int], epochs: Mapping[int, int | None]) -> Any:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        return OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                kind(
                    topic=self._topic,
                    partitions=[
                        kind.OffsetForLeaderPartition(
                            partition=partition,
                            current_leader_epoch=leader_epoch,
                            leader_epoch=leader_epoch if epochs[partition] is None else epochs[partition],
                        )
                        for partition, leader_epoch in sorted(led.items())
                    ],
                )
            ],
        )

    def _end(self, answer: Any) -> EpochEnd:
        if answer.error_code:
            raise self._refused(answer.error_code)
        if answer.leader_epoch == _NONE or answer.end_offset < 0:
            raise self._unavailable(f"the leader of partition {answer.partition} does not know the epoch")
        return EpochEnd(int(answer.leader_epoch), int(answer.end_offset))

    def _refused(self, code: int) -> RtolapError:
        error = raised(code, None)
        if code == _FORBIDDEN:
            return translated(_ATTEMPT, _RIGHT, error, self._cluster)
        return self._unavailable(type(error).__name__)

    def _unavailable(self, found: str) -> Unavailable:
        return Unavailable(
            f"Kafka did not report the leader epochs of topic {self._topic}", found=found, action="retry"
        )
