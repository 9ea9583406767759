"""Rates of topics off agents and exporters on real sockets: one request each, two where bytes are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import Corrupted
from rtolap.fleet.monitoring.prometheus_text import parse_topics
from rtolap.fleet.monitoring.topic_rates import BULK_READ, SourceRates, parse_rates
from rtolap.fleet.snapshot.rates import TopicRates

from tests.support.fleet.served_pages import Answer, agent, declared
from tests.support.twins.clock import ManualClock

PLAIN_PAGE = """kafka_server_BrokerTopicMetrics_FifteenMinuteRate{name="BytesInPerSec"} 30.0
kafka_server_BrokerTopicMetrics_FifteenMinuteRate{name="BytesInPerSec",topic="a.b"} 20.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="BytesInPerSec",topic="a.b"} 99.0
kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic="a.b"} 9000.0
kafka_server_BrokerTopicMetrics_FifteenMinuteRate{name="BytesOutPerSec",topic="a.b"} 4.0
kafka_server_BrokerTopicMetrics_FifteenMinuteRate{name="ReplicationBytesInPerSec"} 7.0
kafka_server_app_info_StartTimeMs{id="3"} 1.7E12
"""


def bean(name: str, topic: str) -> str:
    return f"kafka.server:name={name},topic={topic},type=BrokerTopicMetrics"


def agents_answer(broker: int, rates: dict[str, tuple[float, float]]) -> bytes:
    answers: list[dict[str, object]] = []
    for at, name in enumerate(("BytesInPerSec", "BytesOutPerSec")):
        value = {bean(name, topic): {"FifteenMinuteRate": both[at]} for topic, both in rates.items()}
        answers.append({"status": 200, "value": value} if value else {"status": 404, "error": "no bean"})
    ids = {f"kafka.server:id={broker},type=app-info": {"Version": "4.3.1"}}
    return json.dumps([*answers, {"status": 200, "value": ids}]).encode()


def rows(told: TopicRates) -> dict[tuple[int, str], tuple[float, float]]:
    columns = (
        told.brokers.tolist(),
        told.topics,
        told.bytes_in_per_s.tolist(),
        told.bytes_out_per_s.tolist(),
    )
    return {(broker, topic): (into, out) for broker, topic, into, out in zip(*columns, strict=True)}


def test_an_agent_is_asked_once_for_all_topics_and_silent_brokers_are_named(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def answer(request: Any) -> Answer:
        asked.append(request.body)
        return 200, agents_answer(1, {"orders": (400.0, 80.0), "a.b": (1.0, 0.0)})

    with agent(answer) as first, agent(lambda _: (200, agents_answer(9, {}))) as second:
        text = "\n".join(
            (
                "brokers:",
                f"  1: {{jolokia: '{first}'}}",
                f"  2: {{jolokia: '{second}'}}",
                "  3: {jolokia: 'http://127.0.0.1:1/jolokia'}",
                "  4: {logs: [/var/log/kafka.log]}",
            )
        )
        told = SourceRates(declared(tmp_path, text), timeout_s=2.0)([1, 2, 3, 4, 5])
    assert asked == [BULK_READ]
    assert rows(told) == {(1, "orders"): (400.0, 80.0), (1, "a.b"): (1.0, 0.0)}
    assert told.answered == {1}
    assert "agent of broker 9" in told.missing[2]
    assert sorted(told.missing) == [2, 3, 4, 5]
    assert "no Jolokia agent or Prometheus exporter" in told.missing[5]


def test_an_agent_without_topics_has_answered() -> None:
    assert parse_rates(agents_answer(1, {})).by_topic == {}
    with pytest.raises(Corrupted):
        parse_rates(b"[]")


def test_an_exporter_without_rules_tells_rates() -> None:
    found = parse_topics(PLAIN_PAGE.encode())
    assert (found.by_topic, found.counted, found.ids) == ({"a.b": (20.0, 4.0)}, False, (3,))


def test_an_exporter_by_the_usual_rules_is_counted_over_a_time(tmp_path: Path) -> None:
    counts = iter(((1000, 50), (6000, 50)))
    clock = ManualClock(0)

    def page(_: Any) -> Answer:
        into, out = next(counts)
        lines = (
            "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter",
            f"kafka_server_brokertopicmetrics_bytesin_total {into * 2}.0",
            f'kafka_server_brokertopicmetrics_bytesin_total{{topic="orders",}} {into}.0',
            f'kafka_server_brokertopicmetrics_bytesout_total{{topic="orders",}} {out}.0',
        )
        return 200, "\n".join(lines).encode()

    with agent(page) as url:
        sources = declared(tmp_path, f"brokers: {{1: {{prometheus: '{url}'}}}}")
        told = SourceRates(
            sources, counted_s=5.0, clock=clock, sleep=lambda s: clock.advance_ms(int(s * 1000))
        )([1])
    assert rows(told) == {(1, "orders"): (1000.0, 0.0)}


def test_a_page_without_bytes_of_topics_is_refused() -> None:
    with pytest.raises(Corrupted, match="no bytes of topics"):
        parse_topics(b"kafka_server_replicamanager_underreplicatedpartitions 2.0\n")
