"""A broker's histograms in memory, as Kafka keeps them, and the two pages that tell of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.readings import BrokerGauges
from rtolap.fleet.monitoring.stages import (
    METRIC_NAMES,
    PARTS,
    REQUEST_NAMES,
    RequestType,
    Stage,
    StageTimes,
    from_times,
)

_KEPT = 1000  # the sample of Kafka's histograms has so many, and forgets old ones


class MemoryBroker:
    """`serve` counts requests, each with its times by stage; the total is their sum."""

    def __init__(self) -> None:
        self._times: dict[tuple[RequestType, Stage], list[int]] = defaultdict(list)

    def serve(self, request: RequestType, requests: int = 1, **stages_ms: float) -> None:
        """Serve requests. `stages_ms` is by the stage's name in small letters, 0 where it is not named."""
        times = {stage: stages_ms.get(stage.name.lower(), 0.0) for stage in Stage}
        times[Stage.TOTAL] = sum(times[stage] for stage in PARTS)
        for stage, time_ms in times.items():
            self._times[request, stage] += [round(time_ms)] * requests

    def stage_times(self) -> dict[tuple[RequestType, Stage], StageTimes]:
        found = {}
        for key, values in self._times.items():
            p50, p95, p99, p999 = np.percentile(values[-_KEPT:], [50, 95, 99, 99.9], method="higher").tolist()
            found[key] = StageTimes(len(values), sum(values) / len(values), p50, p95, p99, p999)
        return found


def look_at(
    brokers: Mapping[int, MemoryBroker],
    at_ms: int,
    gauges: Mapping[int, BrokerGauges] | None = None,
    missing: Iterable[Any] = (),
) -> StageLook:
    times = {
        (broker, *key): found for broker, it in brokers.items() for key, found in it.stage_times().items()
    }
    known = {broker: BrokerGauges() for broker in brokers} | dict(gauges or {})
    return StageLook(at_ms, from_times(times), known, tuple(missing))


def jolokia_answer(
    broker: MemoryBroker, broker_id: int = 1, *, lag: float = 0.0, offline: Iterable[str] = (), dirs: int = 2
) -> bytes:
    """Return what an agent answers to the bulk read: beans that the broker lacks are status 404."""
    by_request: dict[RequestType, dict[str, dict[str, object]]] = defaultdict(dict)
    for (request, stage), found in broker.stage_times().items():
        name = (
            f"kafka.network:name={METRIC_NAMES[stage]},request={REQUEST_NAMES[request]},type=RequestMetrics"
        )
        by_request[request][name] = {
            "Count": found.count,
            "Mean": found.mean_ms,
            "50thPercentile": found.p50_ms,
            "95thPercentile": found.p95_ms,
            "99thPercentile": found.p99_ms,
            "999thPercentile": found.p999_ms,
        }
        size = f"kafka.network:name=RequestBytes,request={REQUEST_NAMES[request]},type=RequestMetrics"
        by_request[request][size] = {"Count": 1, "Mean": 7e9}
    answers: list[dict[str, object]] = [
        {"status": 200, "value": by_request[request]}
        if by_request[request]
        else {"status": 404, "error": "x"}
        for request in RequestType
    ]
    answers += [{"status": 200, "value": {"Value": lag}}, {"status": 200, "value": {"Value": 0}}]
    answers += [{"status": 404, "error": "no such bean"}, {"status": 200, "value": {"OneMinuteRate": 0.9}}]
    answers += [{"status": 200, "value": {"Value": "NaN"}}, {"status": 200, "value": {"Value": 3}}]
    paths = [*offline, *(f"/data/d{number}" for number in range(dirs))]
    answers.append(
        {
            "status": 200,
            "value": {
                f'kafka.log:logDirectory="{path}",name=LogDirectoryOffline,type=LogManager': {
                    "Value": int(path in offline)
                }
                for path in paths
            },
        }
    )
    ids = {f"kafka.server:id={broker_id},type=app-info": {"Version": "4.3.1"}}
    answers.append({"status": 200, "value": ids})
    return json.dumps(answers).encode()
