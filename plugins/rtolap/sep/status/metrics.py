"""The last look as Prometheus' gauges, `rtolap_replication_…`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rtolap.base.metrics import Family, Metrics
from rtolap.sep.status.model import QueueStatus, ReplicationStatus
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
        yield self._metrics.value("looked_at_seconds", status.at_ms / 1000)
        for name, of in _OF_PEERS.items():
            yield self._metrics.family(name, [((row.peer,), of(row)) for row in summaries])

    def _queues(self, status: ReplicationStatus) -> Iterable[Family]:
        for name, of in _OF_QUEUES.items():
            values = [((row.peer, row.server, row.queue), of(row)) for row in status.queues]
            yield self._metrics.family(name, values)


def _seconds(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


# None: it is not known.
_OF_PEERS: Final[Mapping[str, Callable[[PeerSummary], float | None]]] = {
    "peer_enabled": lambda row: row.enabled,
    "peer_sinks": lambda row: row.sinks,
    "peer_recovered_queues": lambda row: row.recovered_queues,
    "peer_catch_up_seconds": lambda row: _seconds(row.catch_up_ms),
}
_OF_QUEUES: Final[Mapping[str, Callable[[QueueStatus], float | None]]] = {
    "queue_logs": lambda row: row.logs,
    "queue_lag_seconds": lambda row: _seconds(row.lag_ms),
    "queue_remaining_bytes": lambda row: row.remaining_bytes,
    "queue_last_shipped_seconds": lambda row: _seconds(row.last_shipped_ms),
    "queue_failed_batches": lambda row: row.failed_batches,
}
