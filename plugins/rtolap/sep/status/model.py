"""The state of a cluster's replication, and the reasons for which the sources of its queues wait.

Times in milliseconds since 1970, None: not known.
"""

from __future__ import annotations

import msgspec

DISABLED = "the peer is disabled"
NO_SINKS = "no sink is registered"
STOPPED = "the source does not run"
NOTHING = "nothing to replicate"
FAILING = "calls to the sinks fail"
STANDING = "calls fail or hang: none was confirmed since the look before"

PEERS = "peers"
LOG_SIZES, JMX = "sizes of logs", "JMX"  # sources that a look reads on request


class MissingSource(msgspec.Struct, frozen=True):
    """A source that could not be read, and the reason. Its columns are empty."""

    source: str
    reason: str


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of a region server. Its current log is the one that is shipped. None means not known.

    Attributes:
        recovered_from: the failed servers that had the queue, the last one first; empty for a server's own.
        logs: the number of logs, with the current one.
        further_bytes: the size of all logs but the current one.
        is_further_lower_bound: True while one of these logs is being written on HDFS, which reports its size
            only in part.
        log_bytes: the size of the current log.
        is_log_lower_bound: the same as `is_further_lower_bound`, for the current log.
        lag_ms: the age of the oldest edit that is not shipped; 0 where all is shipped.
        last_shipped_age_ms: the age of the last edit when it was shipped.
        reported_ms: when the server reported to its master.
        reason: what shipping waits for; None while it goes on.
        since_ms: how long the reason has lasted.
    """

    peer: str
    server: str
    queue: str
    recovered_from: tuple[str, ...] = ()
    logs: int | None = None
    further_bytes: int | None = None
    is_further_lower_bound: bool = False
    log: str | None = None
    log_bytes: int | None = None
    is_log_lower_bound: bool = False
    position_bytes: int | None = None
    lag_ms: int | None = None
    last_shipped_ms: int | None = None
    last_shipped_age_ms: int | None = None
    next_written_ms: int | None = None
    shipped_ops: int | None = None
    failed_batches: int | None = None
    running: bool | None = None
    reported_ms: int | None = None
    reason: str | None = None
    since_ms: int | None = None

    @property
    def progress(self) -> float | None:
        """The part of the current log that is shipped, 0 to 1."""
        if self.is_log_lower_bound or not self.log_bytes or (self.position_bytes or 0) > self.log_bytes:
            return None
        return (self.position_bytes or 0) / self.log_bytes

    @property
    def remaining_bytes(self) -> int | None:
        """All that is not shipped, edits of other tables with it; see `is_remaining_lower_bound`."""
        if self.further_bytes is None or self.log_bytes is None:
            return None
        return self.further_bytes + max(0, self.log_bytes - (self.position_bytes or 0))

    @property
    def is_remaining_lower_bound(self) -> bool:
        return self.is_log_lower_bound or self.is_further_lower_bound


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a peer, in which None means unknown.

    Attributes:
        sinks: the number of servers of the receiving cluster (the peer count).
        failed_batches: the sum over all of the peer's servers.
    """

    peer: str
    enabled: bool | None = None
    serial: bool | None = None
    cluster_key: str = ""
    sinks: int | None = None
    failed_batches: int | None = None


class ReplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Queues stand by peer, recovered ones last, then by server."""

    at_ms: int
    cluster: str
    servers: int
    peers: tuple[PeerStatus, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    missing: tuple[MissingSource, ...] = ()

    def peer(self, name: str) -> PeerStatus | None:
        return next((peer for peer in self.peers if peer.peer == name), None)

    def queues_of(self, peer: str) -> tuple[QueueStatus, ...]:
        return tuple(queue for queue in self.queues if queue.peer == peer)


def reason_of(
    queue: QueueStatus,
    peer: PeerStatus,
    before: QueueStatus | None = None,
    peer_before: PeerStatus | None = None,
) -> str | None:
    """Return the reason that a queue stands; None while edits are shipped, and where the reason is not known.

    `before`: the same queue a look earlier; without one nothing is said of progress.
    """
    if peer.enabled is False:
        return DISABLED
    if queue.lag_ms == 0 and not queue.recovered_from and _is_read_through(queue, before):
        return NOTHING
    if peer.sinks == 0:
        return NO_SINKS
    if queue.running is False:
        return STOPPED
    if before is None or not queue.lag_ms:
        return None
    if _has_moved(before, queue):
        return None
    failed = (before.failed_batches, queue.failed_batches)
    if None in failed and peer_before is not None:
        failed = (peer_before.failed_batches, peer.failed_batches)
    if failed[0] is not None and failed[1] is not None and failed[1] > failed[0]:
        return FAILING
    if before.reported_ms is not None and before.reported_ms == queue.reported_ms:
        return None  # the server has not reported in between
    return STANDING


def since_ms(queue: QueueStatus, reason: str | None, now_ms: int) -> int | None:
    """Return for how many ms a queue has been standing: since the oldest edit that waits was written, or the
    last one was shipped."""
    if reason is None:
        return None
    begin_ms = queue.last_shipped_ms if reason == NOTHING else queue.next_written_ms
    if begin_ms is None:
        return queue.lag_ms or None
    return max(0, now_ms - begin_ms)


def _is_read_through(queue: QueueStatus, before: QueueStatus | None) -> bool:
    """Return False where a source may not have looked into its further logs yet.

    An empty one may stand before the current one for long: HBase takes it out with the next edit.
    """
    if queue.logs is None or queue.logs <= 1:
        return True
    return (
        before is not None
        and before.lag_ms == 0
        and before.reported_ms != queue.reported_ms
        and not _has_moved(before, queue)
    )


def _has_moved(before: QueueStatus, queue: QueueStatus) -> bool:
    return (before.log, before.position_bytes, before.shipped_ops, before.last_shipped_ms) != (
        queue.log,
        queue.position_bytes,
        queue.shipped_ops,
        queue.last_shipped_ms,
    )
