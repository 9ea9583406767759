"""The Prometheus metrics of a publisher."""

from __future__ import annotations

from rtolap.base.metrics import Metrics
from rtolap.publish.publisher import Look


class PublishMetrics:
    def __init__(self) -> None:
        self.registry = Metrics("publish")
        self._looks = self.registry.counter("looks")
        self._failures = self.registry.counter("failed_looks")
        self._committed = self.registry.counter("snapshots")
        self._kept = self.registry.gauge("table_snapshots")
        self._bytes = self.registry.gauge("table_metadata_bytes")

    def looked(self, look: Look) -> None:
        self._looks.inc()
        self._committed.inc(look.committed)
        self._kept.set(look.snapshots)
        self._bytes.set(look.metadata_bytes)

    def failed(self, error: str) -> None:
        """Count a look that failed. `error`: the code of one of our errors."""
        self._failures.labels(error).inc()
