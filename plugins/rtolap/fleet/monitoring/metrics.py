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
        family = self._metrics.family
        looked = self._metrics.value("stages_looked_at_seconds", shown.look.at_ms / 1000)
        answers, behind, slow = family("broker_answers"), family("broker_lag_records"), family("broker_slow")
        for broker, gauges in sorted(shown.look.gauges.items()):
            answers.add_metric([str(broker)], 1)
            if gauges.lag_records_max is not None:
                behind.add_metric([str(broker)], gauges.lag_records_max)
        for broker in shown.look.silent_brokers:
            answers.add_metric([str(broker)], 0)
        for row in shown.rows:
            slow.add_metric([str(row.broker), REQUEST_NAMES[row.request]], int(row.is_slow))
        return (looked, answers, behind, slow)

    def _stages(self, window: StageWindow) -> Iterable[Family]:
        requests = self._metrics.family("requests_per_second")
        mean, p99 = self._metrics.family("stage_mean_seconds"), self._metrics.family("stage_p99_seconds")
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
        lines, storms = self._metrics.family("log_lines"), self._metrics.family("log_storm_seconds")
        for row in self._rows():
            lines.add_metric([str(row.broker), row.rule], row.count)
            if row.storm_ms is not None:
                storms.add_metric([str(row.broker), row.rule], row.storm_ms / 1000)
        return (lines, storms)
