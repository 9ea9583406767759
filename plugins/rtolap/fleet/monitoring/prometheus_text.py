"""A broker's page for Prometheus, as JMX exporters write it: the same histograms, under either of two names.

    kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 12.0   by the usual rules
    kafka_network_requestmetrics_totaltimems_count{request="Produce"} 300.0
    kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Produce"} 12.0      without rules
    kafka_network_RequestMetrics_Count{name="TotalTimeMs",request="Produce"} 300.0

The usual rules leave the mean out: then percentiles are known, and nothing exact between two looks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import msgspec
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from rtolap.base.errors import Corrupted
from rtolap.fleet.monitoring.readings import BrokerGauges, BrokerReading
from rtolap.fleet.monitoring.stages import METRIC_NAMES, REQUEST_NAMES, RequestType, Stage, StageTimes

PAGE_BYTES_MAX = 64 << 20  # a broker with thousands of topics writes a line for each of them

_PREFIX = "kafka_network_requestmetrics_"
_STAGES = {name.lower(): stage for stage, name in METRIC_NAMES.items()}
_REQUESTS = {name.lower(): request for request, name in REQUEST_NAMES.items()}
_VALUES = {
    "count": "count",
    "mean": "mean_ms",
    "50thpercentile": "p50_ms",
    "95thpercentile": "p95_ms",
    "99thpercentile": "p99_ms",
    "999thpercentile": "p999_ms",
}
_QUANTILES = {0.5: "p50_ms", 0.95: "p95_ms", 0.99: "p99_ms", 0.999: "p999_ms"}
_GAUGES = {
    "kafka_server_replicafetchermanager_maxlag": "lag_records_max",
    "kafka_server_replicamanager_underreplicatedpartitions": "under_replicated",
    "kafka_server_replicamanager_isrshrinks_total": "isr_shrinks",
}


def parse_page(content: bytes) -> BrokerReading:
    """Raises Corrupted for what is no such page, and where it has no times of requests."""
    values: dict[tuple[RequestType, Stage], dict[str, float]] = defaultdict(dict)
    gauges: dict[str, float] = {}
    for name, labels, number in _samples(content):
        if math.isnan(number):
            continue
        if name in _GAUGES:
            gauges[_GAUGES[name]] = max(number, gauges.get(_GAUGES[name], number))
        request = _REQUESTS.get(labels.get("request", "").lower())
        if request is None or not name.startswith(_PREFIX):
            continue
        stage_name, value_name = _stage_and_value(name.removeprefix(_PREFIX), labels)
        stage = _STAGES.get(stage_name)
        if stage is not None and value_name is not None:
            values[request, stage][value_name] = number
    if not values:
        raise Corrupted("the page has no times of requests", expected=f"{_PREFIX}… with a label request")
    times = {key: StageTimes(count=int(found.pop("count", -1)), **found) for key, found in values.items()}
    return BrokerReading(times, msgspec.convert(gauges, BrokerGauges))


def _stage_and_value(name: str, labels: dict[str, str]) -> tuple[str, str | None]:
    if "name" in labels:
        return labels["name"].lower(), _VALUES.get(name)
    if "quantile" in labels:
        return name, _QUANTILES.get(_float(labels["quantile"]))
    stage, _, value = name.rpartition("_")
    return stage, _VALUES.get(value)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _samples(content: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    """Names in small letters. Only lines that may matter are parsed: a page has thousands of others."""
    lines = [
        line
        for line in content.decode("utf-8", errors="replace").splitlines()
        if not line.startswith("#") and ("requestmetrics" in line[:60].lower() or "_replica" in line[:60])
    ]
    try:
        families: list[Metric] = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError as error:
        raise Corrupted("this is no page for Prometheus", found=str(error)[:200]) from error
    for family in families:
        for sample in family.samples:
            yield sample.name.lower(), sample.labels, sample.value
