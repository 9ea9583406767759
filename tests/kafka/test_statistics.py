"""Tests of what consumers tell of their brokers: by topic and broker, bounded, of those that are open,
cheap."""

from __future__ import annotations

import json

import pytest
from rtolap.base.metrics import Metrics
from rtolap.kafka.statistics import ClientStatistics

from tests.support.scrape import Scrape

PREFIX = "rtolap_receiver_kafka_client_"


def offsets(app: int, last_stable: int, eof: int = -1001) -> dict[str, int]:
    """Of a consumer that joins no group, to which librdkafka tells no lag."""
    return {"app_offset": app, "ls_offset": last_stable, "eof_offset": eof, "consumer_lag": -1}


def document(topic: str, *, rtt_us: int = 2000, lag: int = 5, requests: int = 40) -> str:
    """As librdkafka 2 writes it, the parts that nobody reads left out but for a few."""
    window = {"min": 1, "max": 9, "avg": 2, "sum": 9, "cnt": requests, "p50": rtt_us // 2, "p99": rtt_us}
    none = {"cnt": 0, "p50": 0, "p99": 0}
    brokers = {
        "k1:9092/1": {"nodeid": 1, "rtt": window, "outbuf_latency": window, "throttle": none},
        "k2:9092/2": {"nodeid": 2, "rtt": none, "outbuf_latency": none, "throttle": none},
        "k1:9092/bootstrap": {"nodeid": -1, "rtt": window, "outbuf_latency": none},
        "GroupCoordinator": {"nodeid": -1, "rtt": none},
    }
    partitions = {
        "0": {"leader": 1, "fetchq_cnt": 3, **offsets(100 - lag, 100), "fetch_state": "active"},
        "1": {"leader": 1, "fetchq_cnt": 0, **offsets(-1001, -1001), "fetch_state": "active"},
        "2": {"leader": 2, "fetchq_cnt": 0, **offsets(91, 100), "fetch_state": "none"},
        "-1": {"leader": -1, "fetchq_cnt": 0, **offsets(-1001, -1001), "fetch_state": "none"},
    }
    topics = {topic: {"topic": topic, "partitions": partitions}, "other": {"partitions": partitions}}
    return json.dumps({"name": "c-1", "ts": 1, "brokers": brokers, "topics": topics, "cgrp": {"state": "up"}})


def test_times_and_lag_are_told_by_topic_and_broker_in_seconds_and_records() -> None:
    statistics, metrics = ClientStatistics(), Metrics("receiver")
    statistics.show(metrics)
    statistics.feed("flights", 0.1).hear(document("flights"))
    shown = Scrape(metrics.render()[0].decode())
    assert shown.labels(PREFIX + "rtt_seconds", "broker") == {"1"}
    assert shown(PREFIX + "rtt_seconds", topic="flights", rank="0.99") == pytest.approx(0.002)
    assert shown(PREFIX + "rtt_seconds", topic="flights", rank="0.5") == pytest.approx(0.001)
    assert shown(PREFIX + "requests", topic="flights", broker="1") == 40
    assert shown(PREFIX + "lag_records", topic="flights", broker="1", rank="0.99") == 5
    assert shown(PREFIX + "fetch_queue_records", broker="1", rank="0.99") == 3
    assert shown(PREFIX + "fetch_wait_seconds", topic="flights") == pytest.approx(0.1)
    assert PREFIX + "throttle_seconds" not in shown
    assert shown.labels(PREFIX + "lag_records", "broker") == {"1"}


def test_of_several_consumers_of_a_topic_the_worst_is_told_and_their_requests_are_summed() -> None:
    statistics = ClientStatistics()
    slow, quick = statistics.feed("flights", 0.1), statistics.feed("flights", 0.1)
    slow.hear(document("flights", rtt_us=900_000, lag=70))
    quick.hear(document("flights", lag=1))
    row = statistics.rows()["flights", 1]
    assert row.requests == 80
    assert row.latencies["rtt"] == (pytest.approx(0.45), pytest.approx(0.9))
    assert sorted(row.lags) == [1, 70]
    slow.close()
    assert statistics.rows()["flights", 1].latencies["rtt"][1] == pytest.approx(0.002)


def test_a_consumer_that_has_told_nothing_yet_or_is_closed_is_not_shown() -> None:
    statistics = ClientStatistics()
    feed = statistics.feed("flights", 0.1)
    assert statistics.rows() == {}
    feed.hear(document("flights"))
    feed.close()
    assert statistics.rows() == {}
    assert statistics.fetch_waits_s() == {}


@pytest.mark.parametrize(
    ("partition", "lag"),
    [
        (offsets(40, 100), 60),
        (offsets(100, 100, 100), 0),
        (offsets(99, 100, 100), 0),  # the last offset is a transaction's marker
        (offsets(-1001, 100, 100), 0),  # begun at the end
        (offsets(-1001, 100), None),
        (offsets(5, -1001), None),
        ({**offsets(40, 100, 100), "fetchq_cnt": 7}, 60),  # all is fetched, and not taken yet
    ],
)
def test_the_lag_is_what_the_process_has_not_taken(partition: dict[str, int], lag: int | None) -> None:
    statistics = ClientStatistics()
    told = {"partitions": {"0": {"leader": 1, "fetch_state": "active", **partition}}}
    statistics.feed("flights", 0.1).hear(json.dumps({"topics": {"flights": told}}))
    assert statistics.rows()["flights", 1].lags == ([] if lag is None else [lag])
