"""Rates of topics by the metrics of the brokers that lead them: one bulk read a broker, all of them at once.

Kafka averages each rate over one, five and fifteen minutes. A plan goes on for hours, so the longest is
taken. An exporter by Kafka's usual rules tells no rate, only what has been counted since the broker started;
it is read twice then, and the rate is of the seconds in between. `MessagesInPerSec` is not asked for: disks,
throttles and networks bear bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import httpx
import msgspec
import numpy as np

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import RtolapError
from rtolap.fleet.monitoring.http_pages import ask_brokers, check_is, post_to_agent, read_page
from rtolap.fleet.monitoring.jolokia import (
    IDS_BEAN,
    bean_keys,
    broker_ids,
    number_of,
    parse_answers,
    read_request,
)
from rtolap.fleet.monitoring.prometheus_text import PAGE_BYTES_MAX, parse_topics
from rtolap.fleet.monitoring.readings import TopicBytes
from rtolap.fleet.monitoring.sources import BrokerSources, FleetSources
from rtolap.fleet.snapshot.rates import TopicRates

TIMEOUT_S = 10.0
COUNTED_S = 5.0
_ANSWER_BYTES_MAX = 64 << 20  # some 120 bytes for each of two rates of a topic
_RATE = "FifteenMinuteRate"
BULK_READ = msgspec.json.encode(
    [
        *(
            read_request(f"kafka.server:type=BrokerTopicMetrics,name={name},topic=*", [_RATE])
            for name in ("BytesInPerSec", "BytesOutPerSec")
        ),
        read_request(IDS_BEAN, ["Version"]),
    ]
)


@dataclass(frozen=True)
class _Reading:
    """at_s: when it was read, by the reader's clock."""

    at_s: float
    found: TopicBytes


class SourceRates:
    """A `RateReader` by declared sources. A broker with unusable secrets is missing, with the reason."""

    def __init__(
        self,
        sources: FleetSources,
        *,
        timeout_s: float = TIMEOUT_S,
        counted_s: float = COUNTED_S,
        clock: Clock = SystemClock(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the sources. `counted_s` is the time over which a broker without rates is counted."""
        self._sources, self._clock = sources, clock
        self._timeout_s, self._counted_s, self._sleep = timeout_s, counted_s, sleep

    def __call__(self, brokers: Collection[int]) -> TopicRates:
        declared = [broker for broker in brokers if broker in self._sources.brokers and self._url_of(broker)]
        missing = {
            broker: "no Jolokia agent or Prometheus exporter of it is declared"
            for broker in brokers
            if broker not in declared
        }
        first, failed = self._ask(declared)
        counted = [broker for broker, reading in first.items() if reading.found.counted]
        rates = {broker: reading.found.by_topic for broker, reading in first.items() if broker not in counted}
        if counted:
            self._sleep(self._counted_s)
            second, failed_later = self._ask(counted)
            failed |= failed_later
            rates |= {broker: _between(first[broker], reading) for broker, reading in second.items()}
        return _columns(rates, missing | failed)

    def _url_of(self, broker: int) -> str:
        return self._sources.brokers[broker].url

    def _ask(self, brokers: Collection[int]) -> tuple[dict[int, _Reading], dict[int, str]]:
        answers = ask_brokers(self._sources, brokers, self._read, self._timeout_s)
        failed = {
            broker: str(answer) for broker, answer in answers.items() if isinstance(answer, RtolapError)
        }
        return {broker: answer for broker, answer in answers.items() if isinstance(answer, _Reading)}, failed

    def _read(self, broker: int, declared: BrokerSources, http: httpx.Client) -> _Reading:
        if declared.jolokia:
            answer = post_to_agent(
                http,
                declared.jolokia,
                BULK_READ,
                bytes_max=_ANSWER_BYTES_MAX,
                timeout_s=self._timeout_s,
            )
            found = parse_rates(answer)
        else:
            page = read_page(
                http, "GET", declared.prometheus, bytes_max=PAGE_BYTES_MAX, timeout_s=self._timeout_s
            )
            found = parse_topics(page)
        check_is(broker, found.ids)
        return _Reading(self._clock.monotonic_s(), found)


def parse_rates(content: bytes) -> TopicBytes:
    """Return an agent's answer to `BULK_READ`. Raises Corrupted for what is no such answer."""
    *metrics, ids = parse_answers(content, 3)
    by_topic: dict[str, tuple[float, float]] = {}
    for at, beans in enumerate(metrics):
        for bean, attributes in beans.items():
            rate = number_of(attributes.get(_RATE) if isinstance(attributes, dict) else None)
            topic = bean_keys(bean).get("topic", "")
            if topic and rate is not None:
                into, out = by_topic.get(topic, (0.0, 0.0))
                by_topic[topic] = (rate, out) if at == 0 else (into, rate)
    return TopicBytes(by_topic, counted=False, ids=broker_ids(ids))


def _between(before: _Reading, now: _Reading) -> dict[str, tuple[float, float]]:
    """Return the rates between two looks. A broker that was started in between is counted from its start, and
    so is a topic that is new there."""
    seconds = max(now.at_s - before.at_s, 1e-3)
    rates = {}
    for topic, counts in now.found.by_topic.items():
        earlier = before.found.by_topic.get(topic, (0.0, 0.0))
        into, out = (
            (count if count < was else count - was) / seconds
            for count, was in zip(counts, earlier, strict=True)
        )
        rates[topic] = (into, out)
    return rates


def _columns(
    rates: Mapping[int, Mapping[str, tuple[float, float]]], missing: Mapping[int, str]
) -> TopicRates:
    rows = [(broker, topic, *values) for broker in sorted(rates) for topic, values in rates[broker].items()]
    into, out = (np.array([row[at] for row in rows], np.float64) for at in (2, 3))
    return TopicRates(
        np.array([row[0] for row in rows], np.int32),
        tuple(row[1] for row in rows),
        np.maximum(into, 0.0),
        np.maximum(out, 0.0),
        frozenset(rates),
        dict(missing),
    )
