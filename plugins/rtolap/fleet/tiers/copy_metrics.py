"""Reads the progress of copying from brokers' Jolokia agents: one bulk read per broker, all of them at once.

Kafka counts by topic, over the partitions that a broker leads. A Prometheus exporter with its usual rules has
other names, so only agents are queried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx
import msgspec
import numpy as np

from rtolap.base.errors import RtolapError
from rtolap.fleet.monitoring.collect import TIMEOUT_S
from rtolap.fleet.monitoring.http_pages import ask_brokers, check_is, post_to_agent
from rtolap.fleet.monitoring.jolokia import (
    IDS_BEAN,
    bean_keys,
    broker_ids,
    number_of,
    parse_answers,
    read_request,
)
from rtolap.fleet.monitoring.sources import BrokerSources, FleetSources
from rtolap.fleet.snapshot.model import UNKNOWN
from rtolap.fleet.tiers.view import CopyReadings, MissingTier, TierView

_ANSWER_BYTES_MAX = 64 << 20  # some 150 bytes for each of four numbers of a topic
# of CopyReadings: Kafka's metric, and its attribute
_METRICS = {
    "lag_segments": ("RemoteCopyLagSegments", "Value"),
    "lag_bytes": ("RemoteCopyLagBytes", "Value"),
    "remote_bytes": ("RemoteLogSizeBytes", "Value"),
    "errors": ("RemoteCopyErrorsPerSec", "Count"),
}
BULK_READ = msgspec.json.encode(
    [
        *(
            read_request(f"kafka.server:type=BrokerTopicMetrics,name={name},topic=*", [attribute])
            for name, attribute in _METRICS.values()
        ),
        read_request(IDS_BEAN, ["Version"]),
    ]
)


@dataclass(frozen=True)
class TopicCopies:
    """values: in the order of CopyReadings' columns."""

    topic: str
    values: tuple[int, ...]


def read_copies(view: TierView, sources: FleetSources, *, timeout_s: float = TIMEOUT_S) -> TierView:
    """Return the view with what agents tell.

    Of brokers without one, and of silent ones, `missing` says so.
    """
    leaders = sorted(set(view.partitions.leaders.tolist()) - {UNKNOWN})
    with_agent = [
        broker for broker in leaders if broker in sources.brokers and sources.brokers[broker].jolokia
    ]
    missing = [
        MissingTier(f"bytes in remote storage at broker {broker}", "no Jolokia agent of it is declared")
        for broker in leaders
        if broker not in with_agent
    ]
    rows: list[tuple[int, int, tuple[int, ...]]] = []
    topic_rows = {name: row for row, name in enumerate(view.topics.names) if view.topics.tiered[row]}
    for broker, answer in _answers(with_agent, sources, timeout_s).items():
        if isinstance(answer, RtolapError):
            missing.append(MissingTier(f"bytes in remote storage at broker {broker}", str(answer)))
            continue
        rows += [
            (topic_rows[reported.topic], broker, reported.values)
            for reported in answer
            if reported.topic in topic_rows
        ]
    rows.sort()
    columns = [np.array([values[at] for _, _, values in rows], np.int64) for at in range(len(_METRICS))]
    copies = CopyReadings(
        np.array([topic for topic, _, _ in rows], np.int32),
        np.array([broker for _, broker, _ in rows], np.int32),
        *columns,
    )
    return TierView(
        view.cluster_id,
        view.taken_at_ms,
        view.tiering,
        view.not_tiering,
        view.topics,
        view.partitions,
        copies,
        (*view.missing, *missing),
    )


def _answers(
    brokers: Sequence[int], sources: FleetSources, timeout_s: float
) -> Mapping[int, list[TopicCopies] | RtolapError]:
    def ask(broker: int, declared: BrokerSources, http: httpx.Client) -> list[TopicCopies]:
        answer = post_to_agent(
            http, declared.jolokia, BULK_READ, bytes_max=_ANSWER_BYTES_MAX, timeout_s=timeout_s
        )
        return parse_copies(answer, broker)

    return ask_brokers(sources, brokers, ask, timeout_s)


def parse_copies(content: bytes, broker: int) -> list[TopicCopies]:
    """Return them by topic; a number that is not there is `UNKNOWN`. Raises Corrupted for what is no such
    answer, and for another broker's."""
    *metrics, ids = parse_answers(content, len(_METRICS) + 1)
    check_is(broker, broker_ids(ids))
    by_topic: dict[str, dict[str, int]] = {}
    for (column, (_, attribute)), beans in zip(_METRICS.items(), metrics, strict=True):
        for bean, attributes in beans.items():
            topic = bean_keys(bean).get("topic", "")
            value = number_of(attributes.get(attribute) if isinstance(attributes, dict) else None)
            if topic and value is not None:
                by_topic.setdefault(topic, {})[column] = int(value)
    return [
        TopicCopies(topic, tuple(values.get(column, UNKNOWN) for column in _METRICS))
        for topic, values in sorted(by_topic.items())
    ]
