"""The last look as Prometheus' gauges, `rtolap_replication_…`."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.status.model import ReplicationStatus
from rtolap.sep.status.summary import PeerSummary

SERVICE = "replication"


class ReplicationMetrics:
    """Shows what was last given to `show`; nothing before. A queue or peer that is gone is not shown."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._shown: tuple[ReplicationStatus, list[PeerSummary]] | None = None
        metrics.sampled(self._sample)

    def show(self, status: ReplicationStatus, summaries: list[PeerSummary]) -> None:
        with self._lock:
            self._shown = (status, summaries)

    def _sample(self) -> Iterable[Family]:
        with self._lock:
            shown = self._shown
        if shown is None:
            return
        status, summaries = shown
        yield from self._peers(status, summaries)
        yield from self._queues(status)

    def _peers(self, status: ReplicationStatus, summaries: list[PeerSummary]) -> Iterable[Family]:
        gauge = self._metrics.gauge_family
        looked = gauge("looked_at_seconds", "When the cluster was looked at, since 1970.")
        looked.add_metric([], status.at_ms / 1000)
        enabled = gauge("peer_enabled", "1 where HBase ships to the peer.", ["peer"])
        sinks = gauge("peer_sinks", "Servers of the receiving cluster.", ["peer"])
        recovered = gauge("peer_recovered_queues", "Queues of servers that are gone.", ["peer"])
        catch_up = gauge("peer_catch_up_seconds", "Until nothing remains, if it goes on so.", ["peer"])
        for row in summaries:
            recovered.add_metric([row.peer], row.recovered_queues)
            if row.enabled is not None:
                enabled.add_metric([row.peer], int(row.enabled))
            if row.sinks is not None:
                sinks.add_metric([row.peer], row.sinks)
            if row.catch_up_ms is not None:
                catch_up.add_metric([row.peer], row.catch_up_ms / 1000)
        return (looked, enabled, sinks, recovered, catch_up)

    def _queues(self, status: ReplicationStatus) -> Iterable[Family]:
        gauge, labels = self._metrics.gauge_family, ["peer", "server", "queue"]
        logs = gauge("queue_logs", "Logs that are not shipped, with the current one.", labels)
        lag = gauge("queue_lag_seconds", "Age of the oldest edit that is not shipped.", labels)
        remaining = gauge(
            "queue_remaining_bytes", "Of its logs, not read yet; at least, while HDFS has one open.", labels
        )
        shipped = gauge("queue_last_shipped_seconds", "When an edit was last shipped, since 1970.", labels)
        failed = gauge("queue_failed_batches", "Calls that failed since the server started.", labels)
        for row in status.queues:
            values = [row.peer, row.server, row.queue]
            if row.logs is not None:
                logs.add_metric(values, row.logs)
            if row.lag_ms is not None:
                lag.add_metric(values, row.lag_ms / 1000)
            if row.remaining_bytes is not None:
                remaining.add_metric(values, row.remaining_bytes)
            if row.last_shipped_ms is not None:
                shipped.add_metric(values, row.last_shipped_ms / 1000)
            if row.failed_batches is not None:
                failed.add_metric(values, row.failed_batches)
        return (logs, lag, remaining, shipped, failed)
