"""Brokers as our own clients see them: pages of our processes, and which of their brokers answer slowly.

Each receiver and loader tells by topic and broker what librdkafka measures (`kafka.statistics`). The time of
a request there has everything in it that the broker's own stages lack: the network, a process that was
stopped, requests that wait to be sent. A fetch has its long poll in it too, which is bounded by what the
client asks for: that much is taken off before anybody is called slow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from rtolap.base.errors import Corrupted, RtolapError
from rtolap.base.ids import CarryingPool
from rtolap.fleet.monitoring.collect import TIMEOUT_S, MissingSource
from rtolap.fleet.monitoring.http_pages import read_page

PAGE_BYTES_MAX = 16 << 20
REQUESTS_MIN = 20  # of an interval of ten seconds: fewer are no percentile
_THREADS = 16
_NAME = re.compile(r"rtolap_(\w+?)_kafka_client_(\w+)")
_P50, _P99 = "0.5", "0.99"


@dataclass(frozen=True)
class ClientBroker:
    """The consumers of a topic in a process, at a broker. Times in milliseconds; NaN if not reported.

    Attributes:
        requests: the number of requests in the last interval.
        fetch_wait_ms: the part of the round-trip time that may be a long poll.
    """

    endpoint: str
    service: str
    topic: str
    broker: int
    requests: int = 0
    fetch_wait_ms: float = 0.0
    rtt_p50_ms: float = math.nan
    rtt_p99_ms: float = math.nan
    outbuf_p99_ms: float = math.nan
    throttle_p99_ms: float = math.nan
    lag_p50: float = math.nan
    lag_p99: float = math.nan
    queued_p50: float = math.nan
    queued_p99: float = math.nan

    @property
    def answered_p99_ms(self) -> float:
        """Return a lower bound of the time that broker and network took, without the long poll."""
        return max(self.rtt_p99_ms - self.fetch_wait_ms, 0.0) if self.rtt_p99_ms >= 0 else math.nan

    def is_slow(self, threshold_ms: float) -> bool:
        """Return True if several requests are slower than that.

        The time may pass at the broker's side, in the network, or here.
        """
        if self.requests < REQUESTS_MIN:
            return False
        return max(self.answered_p99_ms, self.outbuf_p99_ms, self.throttle_p99_ms) > threshold_ms

    def reason(self, threshold_ms: float) -> str | None:
        """Return what the client itself reports. None where the broker's metrics are needed."""
        if self.throttle_p99_ms > threshold_ms:
            return f"a quota of broker {self.broker} throttles it"
        if self.outbuf_p99_ms > threshold_ms:
            return "requests wait in the client to be sent: its host, or the network from it"
        return None


_FIELDS = {
    ("rtt_seconds", _P50): ("rtt_p50_ms", 1000.0),
    ("rtt_seconds", _P99): ("rtt_p99_ms", 1000.0),
    ("outbuf_seconds", _P99): ("outbuf_p99_ms", 1000.0),
    ("throttle_seconds", _P99): ("throttle_p99_ms", 1000.0),
    ("lag_records", _P50): ("lag_p50", 1.0),
    ("lag_records", _P99): ("lag_p99", 1.0),
    ("fetch_queue_records", _P50): ("queued_p50", 1.0),
    ("fetch_queue_records", _P99): ("queued_p99", 1.0),
}


def parse_client_page(endpoint: str, content: bytes) -> list[ClientBroker]:
    """Return rows by service, topic and broker; nothing where the process has no client yet. Raises
    Corrupted."""
    lines = [
        line for line in content.decode("utf-8", errors="replace").splitlines() if "_kafka_client_" in line
    ]
    rows: dict[tuple[str, str, int], ClientBroker] = {}
    waits_ms: dict[tuple[str, str], float] = {}
    try:
        samples = [
            sample
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
        ]
    except ValueError as error:
        raise Corrupted("this is no page for Prometheus", found=str(error)[:200]) from error
    for sample in samples:
        match = _NAME.fullmatch(sample.name)
        topic = sample.labels.get("topic")
        if match is None or topic is None:
            continue
        service, what = match.groups()
        if what == "fetch_wait_seconds":
            waits_ms[service, topic] = sample.value * 1000
            continue
        broker = sample.labels.get("broker", "")
        if not broker.isdecimal():
            continue
        key = (service, topic, int(broker))
        row = rows.get(key, ClientBroker(endpoint, *key))
        if what == "requests":
            rows[key] = replace(row, requests=int(sample.value))
        elif (field := _FIELDS.get((what, sample.labels.get("rank", "")))) is not None:
            measured: dict[str, Any] = {field[0]: sample.value * field[1]}
            rows[key] = replace(row, **measured)
    return [replace(row, fetch_wait_ms=waits_ms.get(key[:2], 0.0)) for key, row in sorted(rows.items())]


@dataclass(frozen=True)
class ClientLook:
    rows: tuple[ClientBroker, ...]
    missing: tuple[MissingSource, ...] = ()


def read_clients(
    endpoints: Iterable[str], headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
) -> ClientLook:
    """Read all pages at once; those that do not answer are named. `headers` hold the cluster's token."""
    urls: Sequence[str] = sorted(set(endpoints))
    if not urls:
        return ClientLook((), (MissingSource("clients", "no page of a receiver or loader is known"),))
    with (
        httpx.Client(headers=dict(headers), timeout=timeout_s, trust_env=False) as http,
        CarryingPool(min(_THREADS, len(urls))) as pool,
    ):
        answers = list(pool.map(lambda url: _read(http, url, timeout_s), urls))
    rows = [row for answer in answers if not isinstance(answer, MissingSource) for row in answer]
    return ClientLook(tuple(rows), tuple(it for it in answers if isinstance(it, MissingSource)))


def _read(http: httpx.Client, url: str, timeout_s: float) -> list[ClientBroker] | MissingSource:
    try:
        page = read_page(http, "GET", url, bytes_max=PAGE_BYTES_MAX, timeout_s=timeout_s)
        return parse_client_page(url, page)
    except RtolapError as error:
        return MissingSource(url, str(error))
