"""Collects the state of a cluster's replication from all sources that answer, and names the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.hbase.queues import Queue, read_queues
from rtolap.sep.status.jmx import JmxPages
from rtolap.sep.status.model import (
    JMX,
    LOG_SIZES,
    PEERS,
    MissingSource,
    PeerStatus,
    QueueStatus,
    ReplicationStatus,
    reason_of,
    since_ms,
)
from rtolap.sep.status.sources import LogSizes, QueueKey, ReplicationSources, ServerReports

_REPORTED = (
    "lag_ms",
    "last_shipped_ms",
    "last_shipped_age_ms",
    "next_written_ms",
    "shipped_ops",
    "running",
    "reported_ms",
)
_NO_REPORTS = ServerReports({}, {})


def collect(
    sources: ReplicationSources,
    now_ms: int,
    *,
    only: Collection[str] = (),
    before: ReplicationStatus | None = None,
) -> ReplicationStatus:
    """Look at the peers `only`, all without any. `before`: a look a while earlier, for what has moved since.

    Raises NotFound for a peer that HBase does not have, and where there is no HBase; Unavailable where its
    ZooKeeper does not answer: everything else is found through it.
    """
    missing: list[MissingSource] = []
    servers = sources.znodes.region_servers()
    peers = _peers(sources, missing)
    if peers is not None:
        unknown = sorted(set(only) - set(peers))
        if unknown:
            raise NotFound(f"HBase has no peer {unknown[0]}", found=", ".join(sorted(peers)) or "none")
    wanted = only or None
    queues = read_queues(sources.znodes, wanted)
    reports = _reports(sources, missing)
    sizes = _sizes(sources, missing)
    pages = _pages(sources, reports, missing)
    chosen = {name: peer for name, peer in (peers or {}).items() if not only or name in only}
    sinks, silent = sources.sinks.read(chosen)
    missing += silent
    rows = _rows(queues, reports.reports, sizes, only)
    names = sorted({*chosen, *(row.peer for row in rows)})
    statuses = tuple(_peer_status(name, chosen.get(name), sinks.get(name), rows, pages) for name in names)
    status = ReplicationStatus(
        at_ms=now_ms,
        cluster=str(sources.cluster),
        servers=len(servers),
        peers=statuses,
        queues=tuple(_with_counters(rows, pages)),
        missing=tuple(missing),
    )
    return with_reasons(status, before)


def with_reasons(status: ReplicationStatus, before: ReplicationStatus | None = None) -> ReplicationStatus:
    """Return the look with what each queue waits for."""
    peers = {peer.peer: peer for peer in status.peers}
    peers_before = {} if before is None else {peer.peer: peer for peer in before.peers}
    queues_before = {} if before is None else {(row.server, row.queue): row for row in before.queues}
    rows = []
    for row in status.queues:
        peer = peers.get(row.peer, PeerStatus(peer=row.peer))
        earlier = queues_before.get((row.server, row.queue))
        reason = reason_of(row, peer, earlier, peers_before.get(row.peer))
        rows.append(msgspec.structs.replace(row, reason=reason, since_ms=since_ms(row, reason, status.at_ms)))
    return msgspec.structs.replace(status, queues=tuple(rows))


def _rows(
    queues: Collection[Queue],
    reports: Mapping[QueueKey, QueueStatus],
    sizes: LogSizes | None,
    only: Collection[str],
) -> list[QueueStatus]:
    """Return a row per queue that ZooKeeper or a server's report knows."""
    rows: dict[QueueKey, QueueStatus] = {}
    for queue in queues:
        key = (str(queue.server), str(queue.id))
        rows[key] = _with_report(_queue_status(queue, sizes), reports.get(key))
    for key, report in reports.items():
        if key not in rows and (not only or report.peer in only):
            rows[key] = report  # its queue is in no node, as in HBase 3, or it has just ended
    return sorted(rows.values(), key=lambda row: (row.peer, bool(row.recovered_from), row.server, row.queue))


def _queue_status(queue: Queue, sizes: LogSizes | None) -> QueueStatus:
    current = queue.logs[0] if queue.logs else None
    row = QueueStatus(
        peer=queue.id.peer,
        server=str(queue.server),
        queue=str(queue.id),
        recovered_from=tuple(str(server) for server in reversed(queue.id.former_servers)),
        logs=len(queue.logs),
        log=None if current is None else current.name,
        position_bytes=None if current is None else current.position_bytes,
    )
    return row if sizes is None else _with_sizes(row, queue, sizes)


def _with_sizes(row: QueueStatus, queue: Queue, sizes: LogSizes) -> QueueStatus:
    """Add the sizes of the logs. A size that is known in part is at least what was read."""
    partly_sized = frozenset() if sizes.is_exact_while_written else queue.open_logs
    found = {log.name: sizes.bytes_by_log.get(log.name) for log in queue.logs}
    known = {
        log.name: max(found[log.name] or 0, log.position_bytes or 0)
        if log.name in partly_sized
        else found[log.name]
        for log in queue.logs
    }
    further = [known[log.name] for log in queue.logs[1:]]
    return msgspec.structs.replace(
        row,
        further_bytes=None if None in further else sum(size or 0 for size in further),
        is_further_lower_bound=any(log.name in partly_sized for log in queue.logs[1:]),
        log_bytes=None if row.log is None else known[row.log],
        is_log_lower_bound=row.log in partly_sized,
    )


def _with_report(row: QueueStatus, report: QueueStatus | None) -> QueueStatus:
    if report is None:
        return row
    return msgspec.structs.replace(row, **{name: getattr(report, name) for name in _REPORTED})


def _with_counters(rows: Collection[QueueStatus], pages: JmxPages) -> list[QueueStatus]:
    """Add the counters of pages. A page that servers share is used only for queues that one of them has
    alone."""
    queue_ids = [row.queue for row in rows]
    counted = []
    for row in rows:
        counters = pages.by_server.get(row.server, {}).get(row.queue)
        if counters is None and queue_ids.count(row.queue) == 1:
            counters = pages.shared.get(row.queue)
        counted.append(
            row if counters is None else msgspec.structs.replace(row, failed_batches=counters.failed_batches)
        )
    return counted


def _peer_status(
    name: str, peer: Peer | None, sinks: int | None, rows: Collection[QueueStatus], pages: JmxPages
) -> PeerStatus:
    queues = {row.queue for row in rows if row.peer == name}
    failed = [
        counters.failed_batches
        for page in (*pages.by_server.values(), pages.shared)
        for queue, counters in page.items()
        if queue in queues
    ]
    return PeerStatus(
        peer=name,
        enabled=None if peer is None else peer.enabled,
        serial=None if peer is None else peer.serial,
        cluster_key="" if peer is None else peer.cluster_key,
        sinks=sinks,
        failed_batches=sum(failed) if failed else None,
    )


def _peers(sources: ReplicationSources, missing: list[MissingSource]) -> dict[str, Peer] | None:
    try:
        return sources.master.peers()
    except RtolapError as error:
        missing.append(MissingSource(PEERS, str(error)))
        return None


def _reports(sources: ReplicationSources, missing: list[MissingSource]) -> ServerReports:
    try:
        return sources.load_reports()
    except RtolapError as error:
        missing.append(MissingSource("GetClusterStatus", str(error)))
        return _NO_REPORTS


def _sizes(sources: ReplicationSources, missing: list[MissingSource]) -> LogSizes | None:
    if sources.wal_sizes is None:
        missing.append(MissingSource(LOG_SIZES, "HBase's root directory was not named"))
        return None
    try:
        return sources.wal_sizes.read()
    except (NotFound, Unavailable) as error:
        missing.append(MissingSource(LOG_SIZES, str(error)))
        return None


def _pages(sources: ReplicationSources, reports: ServerReports, missing: list[MissingSource]) -> JmxPages:
    if sources.jmx is None:
        missing.append(MissingSource(JMX, "it was not requested"))
        return JmxPages({}, {})
    pages = sources.jmx.read(reports.info_ports)
    missing += pages.missing
    return pages
