"""The last window, who is slow and what logs say, for Prometheus: `rtolap_fleet_…`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rtolap.base.metrics import Family, Metrics
from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.log_findings import RuleCount
from rtolap.fleet.monitoring.slow import BrokerRequests
from rtolap.fleet.monitoring.stages import REQUEST_NAMES, RequestType, Stage, StageWindow

SERVICE = "fleet"


@dataclass(frozen=True)
class _Shown:
    look: StageLook
    window: StageWindow
    rows: Sequence[BrokerRequests]


class StageMetrics:
    """Metrics that show the look last given to `show`; nothing before it. Unknown values are left out."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._shown: _Shown | None = None
        metrics.sampled(self._sample)

    def show(self, look: StageLook, window: StageWindow, rows: Sequence[BrokerRequests]) -> None:
        with self._lock:
            self._shown = _Shown(look, window, rows)

    def _sample(self) -> Iterable[Family]:
        with self._lock:
            shown = self._shown
        if shown is not None:
            yield from self._brokers(shown)
            yield from self._stages(shown.window)

    def _brokers(self, shown: _Shown) -> Iterable[Family]:
        gauge = self._metrics.gauge_family
        looked = gauge("stages_looked_at_seconds", "When brokers were last looked at, since 1970.")
        looked.add_metric([], shown.look.at_ms / 1000)
        answers = gauge("broker_answers", "1 where the broker's source has answered.", ["broker"])
        behind = gauge("broker_lag_records", "How far it is behind a leader, at most.", ["broker"])
        for broker, gauges in sorted(shown.look.gauges.items()):
            answers.add_metric([str(broker)], 1)
            if gauges.lag_records_max is not None:
                behind.add_metric([str(broker)], gauges.lag_records_max)
        for broker in shown.look.silent_brokers:
            answers.add_metric([str(broker)], 0)
        slow = gauge("broker_slow", "1 while the broker is called slow.", ["broker", "request"])
        for row in shown.rows:
            slow.add_metric([str(row.broker), REQUEST_NAMES[row.request]], int(row.is_slow))
        return (looked, answers, behind, slow)

    def _stages(self, window: StageWindow) -> Iterable[Family]:
        gauge, labels = self._metrics.gauge_family, ["broker", "request", "stage"]
        requests = gauge("requests_per_second", "Requests of the last window.", labels[:2])
        mean = gauge("stage_mean_seconds", "Of the last window's requests.", labels)
        p99 = gauge("stage_p99_seconds", "Of late requests, at most what their mean allows.", labels)
        seconds = max((window.to_ms - window.from_ms) / 1000, 1e-3)
        for row in range(len(window)):
            names = [str(window.brokers[row]), REQUEST_NAMES[RequestType(window.requests[row])]]
            if window.counts[row] >= 0:
                requests.add_metric(names, window.counts[row] / seconds)
            for stage in Stage:
                for family, matrix in ((mean, window.mean_ms), (p99, window.p99_ms)):
                    if not math.isnan(matrix[row, stage]):
                        family.add_metric([*names, stage.name.lower()], matrix[row, stage] / 1000)
        return (requests, mean, p99)


class LogMetrics:
    """Counts of what rules have found since the process began, by broker and rule."""

    def __init__(self, metrics: Metrics, rows: Callable[[], Iterable[RuleCount]]) -> None:
        self._metrics = metrics
        self._rows = rows
        metrics.sampled(self._sample)

    def _sample(self) -> Iterable[Family]:
        labels = ["broker", "rule"]
        lines = self._metrics.counter_family("log_lines", "Lines of broker logs by rule.", labels)
        storms = self._metrics.gauge_family("log_storm_seconds", "When a storm was last seen.", labels)
        for row in self._rows():
            lines.add_metric([str(row.broker), row.rule], row.count)
            if row.storm_ms is not None:
                storms.add_metric([str(row.broker), row.rule], row.storm_ms / 1000)
        return (lines, storms)
