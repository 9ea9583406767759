"""JMX of a broker through its Jolokia 2 agent: one bulk read, so that a look costs a broker one request.

The agent is a jar beside Kafka's own: `-javaagent:jolokia-agent-jvm-javaagent.jar=port=8778,host=…` in
KAFKA_OPTS. It can do more than read; let it demand TLS and a password, and read alone:
docs/fleet/monitoring.md says how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted
from rtolap.fleet.monitoring.readings import BrokerGauges, BrokerReading
from rtolap.fleet.monitoring.stages import METRIC_NAMES, REQUEST_NAMES, RequestType, Stage, StageTimes

ANSWER_BYTES_MAX = 4 << 20  # a broker's answer has some 20 kB, and a line for each log directory

_HISTOGRAM = {
    "Count": "count",
    "Mean": "mean_ms",
    "50thPercentile": "p50_ms",
    "95thPercentile": "p95_ms",
    "99thPercentile": "p99_ms",
    "999thPercentile": "p999_ms",
}
_STAGES = {name: stage for stage, name in METRIC_NAMES.items()}
_REQUESTS = {name: request for request, name in REQUEST_NAMES.items()}
# gauge → MBean and attribute
GAUGES = {
    "lag_records_max": ("kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica", "Value"),
    "under_replicated": ("kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions", "Value"),
    "isr_shrinks": ("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", "Count"),
    "handlers_idle": (
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
    ),
    "network_idle": ("kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent", "Value"),
    "request_queue": ("kafka.network:type=RequestChannel,name=RequestQueueSize", "Value"),
}
_LOG_DIRS = "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=*"
IDS_BEAN = "kafka.server:type=app-info,id=*"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class _Answer(msgspec.Struct):
    status: int
    value: Any = None
    error: str = ""


def _requests() -> Iterator[dict[str, object]]:
    for name in REQUEST_NAMES.values():
        # also matches histograms that are no times: a read each of 21 beans would be longer both ways
        yield read_request(f"kafka.network:type=RequestMetrics,name=*,request={name}", list(_HISTOGRAM))
    for bean, attribute in GAUGES.values():
        yield read_request(bean, [attribute])
    yield read_request(_LOG_DIRS, ["Value"])
    yield read_request(IDS_BEAN, ["Version"])


def read_request(bean: str, attributes: list[str]) -> dict[str, object]:
    return {"type": "read", "mbean": bean, "attribute": attributes, "config": {"ignoreErrors": "true"}}


BULK_READ = msgspec.json.encode(list(_requests()))
_REQUESTS_SENT = len(REQUEST_NAMES) + len(GAUGES) + 2


def parse_bulk_answer(content: bytes) -> BrokerReading:
    """Parse the answer of a bulk request. Beans that the broker does not have yet are left out. Raises
    Corrupted for any other content."""
    times: dict[tuple[RequestType, Stage], StageTimes] = {}
    values = parse_answers(content, _REQUESTS_SENT)
    for beans in values[: len(REQUEST_NAMES)]:
        for bean, attributes in beans.items():
            keys = bean_keys(bean)
            stage, request = _STAGES.get(keys.get("name", "")), _REQUESTS.get(keys.get("request", ""))
            if stage is not None and request is not None:
                times[request, stage] = _times(attributes)
    gauges: dict[str, float | None] = {}
    for (name, (_, attribute)), beans in zip(GAUGES.items(), values[len(REQUEST_NAMES) :], strict=False):
        gauges[name] = number_of(beans.get(attribute))
    dirs, ids = values[-2:]
    offline = sorted(
        bean_keys(bean).get("logDirectory", "")
        for bean, attributes in dirs.items()
        if number_of(_attributes(attributes).get("Value"))
    )
    return BrokerReading(
        times,
        BrokerGauges(**gauges, offline_log_dirs=tuple(offline) if dirs else None),
        broker_ids(ids),
    )


def parse_answers(content: bytes, requests: int) -> list[Mapping[str, Any]]:
    """Return the result of each read request: for a pattern, attributes by bean; for one bean, values
    by attribute. Raises Corrupted for what is no answer to them."""
    try:
        answers = decode_json(content, list[_Answer])
    except msgspec.DecodeError as error:
        raise Corrupted("this is no answer of a Jolokia agent to a bulk read", found=error) from error
    if len(answers) != requests:
        raise Corrupted("a Jolokia agent has answered", expected=requests, found=len(answers))
    return [_beans(answer) for answer in answers]


def broker_ids(beans: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the nodes that the agent's process is, by what was found for `IDS_BEAN`."""
    return tuple(
        sorted({int(keys["id"]) for keys in map(bean_keys, beans) if keys.get("id", "").isdecimal()})
    )


def bean_keys(bean: str) -> dict[str, str]:
    """Return the keys of an object name; a quoted value is unquoted."""
    quoted: list[str] = []

    def keep(match: re.Match[str]) -> str:
        quoted.append(re.sub(r"\\(.)", r"\1", match[1]))
        return f"\0{len(quoted) - 1}\0"

    keys: dict[str, str] = {}
    for part in _QUOTED.sub(keep, bean).partition(":")[2].split(","):
        key, _, value = part.partition("=")
        keys[key] = quoted[int(value[1:-1])] if value.startswith("\0") else value
    return keys


def _beans(answer: _Answer) -> Mapping[str, Any]:
    """Read a pattern: attributes by bean; or one bean: values by attribute. Nothing where there is no such
    bean, status 404."""
    if answer.status == 404:
        return {}
    if answer.status != 200 or not isinstance(answer.value, dict):
        raise Corrupted(
            "a Jolokia agent refused to read",
            expected="status 200",
            found=f"{answer.status} {answer.error[:200]}",
            action="let its policy allow kafka.* to be read",
        )
    return answer.value


def _attributes(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _times(value: object) -> StageTimes:
    found = _attributes(value)
    numbers = {ours: number_of(found.get(theirs)) for theirs, ours in _HISTOGRAM.items()}
    count = numbers.pop("count")
    return StageTimes(
        count=-1 if count is None else int(count),
        **{name: math.nan if number is None else number for name, number in numbers.items()},
    )


def number_of(value: object) -> float | None:
    """Return a number; None for NaN, which Jolokia writes as text, and for the error of an attribute."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
