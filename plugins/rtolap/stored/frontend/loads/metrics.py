"""Prometheus metrics of a front end's loads."""

from __future__ import annotations

from rtolap.base.metrics import Metrics
from rtolap.protocols.stream_load.messages import LoadAnswer


class LoadMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.running = metrics.gauge("loads_running", "Loads under way.")
        self.refused = metrics.counter("loads_refused", "Loads refused because too many ran.")
        self._loads = metrics.counter("loads", "Loads that were answered.", ("status",))
        self._rows = metrics.counter("rows", "Rows of loads.", ("what",))
        self._bytes = metrics.counter("load_bytes", "Bytes of bodies.")
        self._seconds = metrics.histogram("load_seconds", "A load, from its headers to its answer.")

    def note(self, answer: LoadAnswer) -> None:
        self._loads.labels(answer.status).inc()
        self._rows.labels("loaded").inc(answer.number_loaded_rows)
        self._rows.labels("filtered").inc(answer.number_filtered_rows)
        self._rows.labels("unselected").inc(answer.number_unselected_rows)
        self._bytes.inc(answer.load_bytes)
        self._seconds.observe(answer.load_time_ms / 1000)
