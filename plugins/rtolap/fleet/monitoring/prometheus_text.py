"""A broker's page for Prometheus, as JMX exporters write it: the same metrics, under either of two names.

    kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 12.0   by the usual rules
    kafka_network_requestmetrics_totaltimems_count_total{request="Produce"} 300.0
    kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Produce"} 12.0      without rules
    kafka_network_RequestMetrics_Count{name="TotalTimeMs",request="Produce"} 300.0
    kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 9000.0               by the usual rules
    kafka_server_BrokerTopicMetrics_FifteenMinuteRate{name="BytesInPerSec",topic="orders"} 3.5  without rules
    kafka_server_app_info_StartTimeMs{id="1"} 1.7e12                                            without rules

The usual rules leave means and rates out: then percentiles are known, and nothing exact between two looks; of
bytes, what was counted. They leave out too who the broker is. `include/fleet/jmx-exporter.yaml` has all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from rtolap.base.errors import Corrupted
from rtolap.fleet.monitoring.jolokia import GAUGES, bean_keys
from rtolap.fleet.monitoring.readings import BrokerGauges, BrokerReading, TopicBytes
from rtolap.fleet.monitoring.stages import METRIC_NAMES, REQUEST_NAMES, RequestType, Stage, StageTimes

PAGE_BYTES_MAX = 64 << 20  # a broker with thousands of topics writes a line for each of them

_PREFIX = "kafka_network_requestmetrics_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_IDENTITY = "kafka_server_app_info_"
_RATE, _COUNT = f"{_TOPICS}fifteenminuterate", f"{_TOPICS}count"
# in and out: the name of the meter, and of what the usual rules make of it
_DIRECTIONS = (("bytesinpersec", f"{_TOPICS}bytesin_total"), ("bytesoutpersec", f"{_TOPICS}bytesout_total"))
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
_USUAL_GAUGES = {
    "kafka_server_replicafetchermanager_maxlag": "lag_records_max",
    "kafka_server_replicamanager_underreplicatedpartitions": "under_replicated",
    "kafka_server_replicamanager_isrshrinks_total": "isr_shrinks",
}


def _plain(bean: str, attribute: str) -> tuple[str, str]:
    """Return what the exporter without rules calls it: metric, and label name, in small letters."""
    keys = bean_keys(bean)
    return f"{bean.partition(':')[0]}_{keys['type']}_{attribute}".replace(".", "_").lower(), keys[
        "name"
    ].lower()


_PLAIN_GAUGES = {_plain(*of): gauge for gauge, of in GAUGES.items()}
_LOG_DIRS = {
    ("kafka_log_logmanager_value", "logdirectoryoffline"),
    ("kafka_log_logmanager_logdirectoryoffline", ""),
}
_WITH_REQUESTS = (
    *(_PREFIX, _IDENTITY),
    *(metric for metric, _ in _LOG_DIRS),
    *(metric for metric, _ in _PLAIN_GAUGES),
    *_USUAL_GAUGES,
)


def parse_page(content: bytes) -> BrokerReading:
    """Parse a page. Raises Corrupted for any other content, and for a page without times of requests."""
    values: dict[tuple[RequestType, Stage], dict[str, float]] = defaultdict(dict)
    gauges: dict[str, float] = {}
    log_dirs: dict[str, bool] = {}
    ids: set[int] = set()
    for name, labels, number in _samples(content, _tells_of_requests):
        if name.startswith(_IDENTITY):
            ids |= _ids(labels)
        if math.isnan(number):
            continue
        meter = labels.get("name", "").lower()
        gauge = _USUAL_GAUGES.get(name) or _PLAIN_GAUGES.get((name, meter))
        if gauge is not None:
            gauges[gauge] = max(number, gauges.get(gauge, number))
        if (name, meter) in _LOG_DIRS:
            log_dirs[labels.get("logDirectory", "").strip('"')] = number > 0
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
    offline = tuple(sorted(path for path, is_offline in log_dirs.items() if is_offline))
    reported = BrokerGauges(**gauges, offline_log_dirs=offline if log_dirs else None)
    return BrokerReading(times, reported, tuple(sorted(ids)))


def parse_topics(content: bytes) -> TopicBytes:
    """Return rates where the page has them, else counts.

    Raises Corrupted for what is no such page, and where it has no bytes of topics at all.
    """
    reported: dict[bool, dict[str, tuple[float, float]]] = {False: {}, True: {}}
    ids: set[int] = set()
    has: set[bool] = set()
    for name, labels, number in _samples(content, _tells_of_topics):
        if name.startswith(_IDENTITY):
            ids |= _ids(labels)
            continue
        meter = labels.get("name", "").lower()
        for at, (of_meter, of_rules) in enumerate(_DIRECTIONS):
            counted = name == of_rules or (name == _COUNT and meter == of_meter)
            if not counted and not (name == _RATE and meter == of_meter):
                continue
            has.add(counted)  # the broker's own, without a topic, is there from its start
            topic = labels.get("topic", "")
            if topic and math.isfinite(number):
                into, out = reported[counted].get(topic, (0.0, 0.0))
                reported[counted][topic] = (into, number) if at else (number, out)
    if not has:
        raise Corrupted("the page has no bytes of topics", expected=f"{_TOPICS}… of BytesInPerSec")
    counted = False not in has
    return TopicBytes(reported[counted], counted, tuple(sorted(ids)))


def _ids(labels: dict[str, str]) -> set[int]:
    named = labels.get("id", "")
    return {int(named)} if named.isdecimal() else set()


def _stage_and_value(name: str, labels: dict[str, str]) -> tuple[str, str | None]:
    if "name" in labels:
        return labels["name"].lower(), _VALUES.get(name)
    if "quantile" in labels:
        return name, _QUANTILES.get(_float(labels["quantile"]))
    # from its version 1 on the exporter writes it after the name of whatever is called a counter
    stage, _, value = name.removesuffix("_total").rpartition("_")
    return stage, _VALUES.get(value)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _tells_of_requests(line: str) -> bool:
    return line[:80].lower().startswith(_WITH_REQUESTS)


def _tells_of_topics(line: str) -> bool:
    begin = line[:120].lower()
    is_meter = begin.startswith(_TOPICS) and ("bytesin" in begin or "bytesout" in begin)
    return is_meter or begin.startswith(_IDENTITY)


def _samples(content: bytes, matters: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the samples, with names in small letters. Only lines that may matter are parsed: a page has
    thousands of others."""
    lines = [
        line
        for line in content.decode("utf-8", errors="replace").splitlines()
        if not line.startswith("#") and matters(line)
    ]
    try:
        families: list[Metric] = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError as error:
        raise Corrupted("this is no page for Prometheus", found=str(error)[:200]) from error
    for family in families:
        for sample in family.samples:
            yield sample.name.lower(), sample.labels, sample.value
