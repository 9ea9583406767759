"""Finds why a queue is not shipped further, and since when: HBase's sources sleep for these reasons."""

from __future__ import annotations

from rtolap.sep.status.model import PeerStatus, QueueStatus

DISABLED = "the peer is disabled"
NO_SINKS = "no sink is registered"
STOPPED = "the source does not run"
NOTHING = "nothing to replicate"
FAILING = "calls to the sinks fail"
STANDING = "calls fail or hang: none was confirmed since the look before"


def reason_of(
    queue: QueueStatus,
    peer: PeerStatus,
    before: QueueStatus | None = None,
    peer_before: PeerStatus | None = None,
) -> str | None:
    """None while edits are shipped, and where it cannot be told.

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
    """For how long: since the oldest edit that waits was written, or the last one was shipped."""
    if reason is None:
        return None
    begin_ms = queue.last_shipped_ms if reason == NOTHING else queue.next_written_ms
    if begin_ms is None:
        return queue.lag_ms or None
    return max(0, now_ms - begin_ms)


def _is_read_through(queue: QueueStatus, before: QueueStatus | None) -> bool:
    """False where a source may not have looked into its further logs yet. An empty one may stand before the
    current one for long: HBase takes it out with the next edit."""
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
