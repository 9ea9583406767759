"""Statistics of librdkafka about this process's consumers, every ten seconds, as gauges by topic and broker.

rtolap_<service>_kafka_client_requests{topic, broker}                  answers in the last interval
rtolap_<service>_kafka_client_rtt_seconds{topic, broker, rank}         from sending until the answer
rtolap_<service>_kafka_client_outbuf_seconds{…}                        waiting to be sent, in this process
rtolap_<service>_kafka_client_throttle_seconds{…}                      by a quota
rtolap_<service>_kafka_client_fetch_wait_seconds{topic}                of a fetch's rtt, the longest long poll
rtolap_<service>_kafka_client_lag_records{…}                           over partitions that the broker leads
rtolap_<service>_kafka_client_fetch_queue_records{…}                   over them: fetched, and not taken yet

It costs a consumer one call every ten seconds, which keeps a text; nothing is parsed until somebody looks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from rtolap.base.metrics import Family, Metrics

INTERVAL_MS = 10_000
QUANTILES = (0.5, 0.99)


class _Latencies(msgspec.Struct):
    cnt: int = 0
    p50: int = 0
    p99: int = 0


class _Broker(msgspec.Struct):
    """Microseconds, throttle in milliseconds. nodeid: -1 of an address that was asked for the cluster."""

    nodeid: int = -1
    rtt: _Latencies = msgspec.field(default_factory=_Latencies)
    outbuf_latency: _Latencies = msgspec.field(default_factory=_Latencies)
    throttle: _Latencies = msgspec.field(default_factory=_Latencies)


class _Partition(msgspec.Struct):
    """Offsets are below 0 while they are not known. librdkafka's own lags are by what a group has committed
    or stored, which these consumers never do."""

    leader: int = -1
    fetchq_cnt: int = 0
    app_offset: int = -1
    eof_offset: int = -1
    ls_offset: int = -1
    fetch_state: str = "none"

    @property
    def lag(self) -> int | None:
        """Records that the process has not taken yet. At the end of the log it is none, even where the last
        offsets are no records but markers of transactions."""
        if self.ls_offset < 0:
            return None
        if self.fetchq_cnt == 0 and self.eof_offset == self.ls_offset:
            return 0
        return None if self.app_offset < 0 else max(self.ls_offset - self.app_offset, 0)


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class Statistics(msgspec.Struct):
    """The part of librdkafka's document that is used."""

    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


_DECODER = msgspec.json.Decoder(Statistics)


@dataclass
class BrokerStatistics:
    """Consumers of a topic at one broker.

    Attributes:
        requests: how many there were.
        latencies: seconds by what they are of, as QUANTILES, of the worst consumer.
        lags: records behind, by partition.
        queued: records fetched and not yet read, by partition.
    """

    requests: int = 0
    latencies: dict[str, tuple[float, float]] = field(default_factory=dict)
    lags: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)

    def add_broker(self, broker: _Broker) -> None:
        self.requests += broker.rtt.cnt
        for name, found, unit in (
            ("rtt", broker.rtt, 1e-6),
            ("outbuf", broker.outbuf_latency, 1e-6),
            ("throttle", broker.throttle, 1e-3),
        ):
            if found.cnt:
                worst = self.latencies.get(name, (0.0, 0.0))
                self.latencies[name] = (max(worst[0], found.p50 * unit), max(worst[1], found.p99 * unit))

    def add_partition(self, partition: _Partition) -> None:
        self.queued.append(partition.fetchq_cnt)
        lag = partition.lag
        if lag is not None:
            self.lags.append(lag)


class ConsumerFeed:
    """The last figures of one consumer. `hear` is called on the thread that polls it."""

    def __init__(self, statistics: ClientStatistics, topic: str, fetch_wait_s: float) -> None:
        self.topic = topic
        self.fetch_wait_s = fetch_wait_s
        self.document = ""
        self._statistics = statistics

    def hear(self, document: str) -> None:
        self.document = document

    def close(self) -> None:
        self._statistics.forget(self)


class ClientStatistics:
    """The figures of all consumers of one process; thread-safe."""

    def __init__(self) -> None:
        self._feeds: list[ConsumerFeed] = []
        self._lock = threading.Lock()

    def feed(self, topic: str, fetch_wait_s: float) -> ConsumerFeed:
        """Open the feed of a new consumer, which closes it."""
        feed = ConsumerFeed(self, topic, fetch_wait_s)
        with self._lock:
            self._feeds.append(feed)
        return feed

    def forget(self, feed: ConsumerFeed) -> None:
        with self._lock:
            self._feeds = [other for other in self._feeds if other is not feed]

    def rows(self) -> dict[tuple[str, int], BrokerStatistics]:
        """Return the statistics by topic and broker, of consumers that have reported any."""
        rows: dict[tuple[str, int], BrokerStatistics] = {}
        for feed in self._open():
            if not feed.document:
                continue
            statistics = _DECODER.decode(feed.document)
            for broker in statistics.brokers.values():
                if broker.nodeid >= 0:
                    rows.setdefault((feed.topic, broker.nodeid), BrokerStatistics()).add_broker(broker)
            for partition in _read(statistics, feed.topic):
                rows.setdefault((feed.topic, partition.leader), BrokerStatistics()).add_partition(partition)
        return dict(sorted(rows.items()))

    def fetch_waits_s(self) -> Mapping[str, float]:
        return {feed.topic: feed.fetch_wait_s for feed in self._open()}

    def show(self, metrics: Metrics) -> None:
        """Add them to the metrics of the process."""
        metrics.sampled(lambda: _families(metrics, self.rows(), self.fetch_waits_s()))

    def _open(self) -> list[ConsumerFeed]:
        with self._lock:
            return list(self._feeds)


def _read(statistics: Statistics, topic: str) -> Iterator[_Partition]:
    """Yield partitions that the consumer reads, of known leaders."""
    for partition in statistics.topics.get(topic, _Topic()).partitions.values():
        if partition.leader >= 0 and partition.fetch_state == "active":
            yield partition


def _families(
    metrics: Metrics, rows: Mapping[tuple[str, int], BrokerStatistics], waits_s: Mapping[str, float]
) -> Iterable[Family]:
    requests = metrics.family("kafka_client_requests")
    wait = metrics.family("kafka_client_fetch_wait_seconds")
    latencies = {
        "rtt": metrics.family("kafka_client_rtt_seconds"),
        "outbuf": metrics.family("kafka_client_outbuf_seconds"),
        "throttle": metrics.family("kafka_client_throttle_seconds"),
    }
    lag = metrics.family("kafka_client_lag_records")
    queued = metrics.family("kafka_client_fetch_queue_records")
    for topic, seconds in sorted(waits_s.items()):
        wait.add_metric([topic], seconds)
    for (topic, broker), row in rows.items():
        names = [topic, str(broker)]
        requests.add_metric(names, row.requests)
        for name, values in row.latencies.items():
            for quantile, value in zip(QUANTILES, values, strict=True):
                latencies[name].add_metric([*names, str(quantile)], value)
        for family, numbers in ((lag, row.lags), (queued, row.queued)):
            if numbers:
                found = np.quantile(numbers, QUANTILES, method="higher").tolist()
                for quantile, value in zip(QUANTILES, found, strict=True):
                    family.add_metric([*names, str(quantile)], value)
    return (requests, wait, *latencies.values(), lag, queued)
