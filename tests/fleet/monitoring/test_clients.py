"""How brokers look to our clients: pages are read back as written, and long polls are no slowness."""

from __future__ import annotations

import json
import math

import pytest
from rtolap.base.errors import Corrupted
from rtolap.base.metrics import Metrics
from rtolap.fleet.monitoring.clients import ClientBroker, parse_client_page, read_clients
from rtolap.kafka.statistics import ClientStatistics


def page(service: str, topic: str, *, rtt_ms: float, throttle_ms: int = 0, requests: int = 90) -> bytes:
    """What a process shows whose consumer has one broker, 3."""
    rtt = {"cnt": requests, "p50": int(rtt_ms * 500), "p99": int(rtt_ms * 1000)}
    throttle = {"cnt": requests, "p50": 0, "p99": throttle_ms}
    broker = {
        "nodeid": 3,
        "rtt": rtt,
        "outbuf_latency": {"cnt": 1, "p50": 10, "p99": 20},
        "throttle": throttle,
    }
    partition = {"leader": 3, "fetchq_cnt": 2, "app_offset": 3, "ls_offset": 10, "fetch_state": "active"}
    statistics, metrics = ClientStatistics(), Metrics(service)
    statistics.show(metrics)
    feed = statistics.feed(topic, 0.1)
    feed.hear(json.dumps({"brokers": {"k": broker}, "topics": {topic: {"partitions": {"0": partition}}}}))
    return metrics.render()[0]


def test_a_page_of_ours_is_read_back_whole() -> None:
    (row,) = parse_client_page("http://r:1/metrics", page("receiver", 'fl"ights', rtt_ms=120))
    assert (row.endpoint, row.service, row.topic, row.broker) == (
        "http://r:1/metrics",
        "receiver",
        'fl"ights',
        3,
    )
    assert (row.requests, row.fetch_wait_ms) == (90, 100)
    assert row.rtt_p99_ms == pytest.approx(120)
    assert row.rtt_p50_ms == pytest.approx(60)
    assert row.outbuf_p99_ms == pytest.approx(0.02)
    assert (row.lag_p99, row.queued_p50) == (7, 2)


@pytest.mark.parametrize(
    ("shown", "slow"),
    [
        (page("receiver", "t", rtt_ms=399), False),
        (page("receiver", "t", rtt_ms=401), True),
        (page("receiver", "t", rtt_ms=900, requests=19), False),
        (page("receiver", "t", rtt_ms=50, throttle_ms=400), True),
    ],
    ids=["a long poll", "slower than one", "a few requests", "throttled"],
)
def test_a_client_is_slow_beyond_its_long_poll_and_by_enough_requests(shown: bytes, slow: bool) -> None:
    (row,) = parse_client_page("http://r:1/metrics", shown)
    assert row.is_slow(300) is slow


def test_what_the_client_can_tell_itself_is_not_asked_of_the_broker() -> None:
    (throttled,) = parse_client_page("u", page("loader", "t", rtt_ms=50, throttle_ms=400))
    assert "quota of broker 3" in (throttled.reason(300) or "")
    late = ClientBroker("u", "loader", "t", 3, requests=50, outbuf_p99_ms=500)
    assert "wait in the client" in (late.reason(300) or "")
    assert ClientBroker("u", "loader", "t", 3, requests=50, rtt_p99_ms=500).reason(300) is None
    assert not ClientBroker("u", "loader", "t", 3, requests=50).is_slow(300)
    assert math.isnan(ClientBroker("u", "loader", "t", 3).answered_p99_ms)


def test_pages_without_clients_or_without_sense_are_told_apart() -> None:
    assert parse_client_page("u", Metrics("receiver").render()[0]) == []
    with pytest.raises(Corrupted):
        parse_client_page("u", b'rtolap_receiver_kafka_client_requests{topic="t\n')


def test_a_process_that_does_not_answer_is_named() -> None:
    look = read_clients(["http://127.0.0.1:1/metrics"], {})
    assert look.rows == ()
    assert "refused" in look.missing[0].reason
    assert read_clients([], {}).missing[0].source == "clients"
