"""One look at a cluster's replication. Times in milliseconds since 1970, None: not known."""

from __future__ import annotations

import msgspec


class MissingSource(msgspec.Struct, frozen=True):
    """A source that could not be asked, and the reason: some columns are empty for it."""

    source: str
    reason: str


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of a region server. Its current log is the one that is shipped.

    `recovered_from`: the servers that had it and are gone, the last one first; none: its server's own.
    `logs`: with the current one. `further_bytes`: of all logs but the current one. `log_bytes`: of the
    current one. Either is a lower bound where a log is still written on HDFS, which tells its size in part.
    `lag_ms`: of the oldest edit that is not shipped, 0 where there is none. `last_shipped_age_ms`: how old
    the last edit was when it was shipped. `reported_ms`: when the server told its master so.
    `reason`: what shipping waits for, None while it goes on; `since_ms`: for how long already.
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
    """`sinks`: servers of the receiving cluster, the peer count. `failed_batches`: over all its servers."""

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
