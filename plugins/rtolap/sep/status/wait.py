"""All that was written before an instant has been delivered: the criterion, and waiting for it.

A region server enters each log into the queues of its peers before it writes to it, and takes it out when
all of it was shipped and confirmed. So at the instant every undelivered edit is in a log that stands in a
queue of the peer, and that moment's logs are *due*:

    delivered  ⇔  no log that was due at the instant stands in any queue of the peer, recovered ones too

Queues move when a server takes over what another left; the logs keep their names, so names are what is
followed. The newest log of each server is written on and would stay, so servers with due logs are requested
to begin another (HBase's `wal_roll`) after the due logs were noted. With an instant in the past, logs that
were begun after it by their server's clock are not due.

A source that is behind may pass several logs without edits at once. HBase takes those out of the queue only
when it is done with the log that it reads now, which nobody may write to for an hour. So a server whose due
logs stand is requested again, at growing distances: each log that this adds is at least as long after the one
before as that was after the due log.

That is exact for what was acknowledged before the instant, and never early; what was written shortly after it
may be waited for too. Nothing is measured: no clock of ours, no size of a file, no age.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container

import msgspec
from google.protobuf.empty_pb2 import Empty

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import NotFound, NotYet, Refused, Unavailable
from rtolap.model.durations import format_duration
from rtolap.sep.hbase.connection import Connection
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.queues import Queue, read_stable_queues
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName

POLL_S = 1.0
_ROLL_TIMEOUT_S = 10.0
_ROLL_AGAIN_MS = 5_000
_LOGS_NAMED_MAX = 3


class DueLogs(msgspec.Struct, frozen=True):
    """The logs that must be delivered.

    Attributes:
        unrolled: the servers (host,port,startcode) that have not begun another log yet.
    """

    peer: str
    logs: tuple[str, ...]
    unrolled: tuple[str, ...] = ()


def due_logs(znodes: HBaseZnodes, peer: str, *, before_ms: int | None = None) -> DueLogs:
    """Return logs with edits that were written before now, or before `before_ms`, and may not be delivered.

    Raises Unavailable where ZooKeeper does not answer.
    """
    znodes.store.sync()
    queues = read_stable_queues(znodes, [peer])
    living = {str(server) for server in znodes.region_servers()}
    logs: set[str] = set()
    unrolled: set[str] = set()
    for queue in queues:
        due = [
            log.name
            for log in queue.logs
            if before_ms is None or log.created_ms is None or log.created_ms < before_ms
        ]
        logs.update(due)
        if due and not queue.id.is_recovered and str(queue.server) in living:
            # also where newer logs are there: HBase takes an empty one out when it is done with a later one
            unrolled.add(str(queue.server))
    return DueLogs(peer, tuple(sorted(logs)), tuple(sorted(unrolled)))


def still_due(znodes: HBaseZnodes, due: DueLogs, now_ms: int) -> DueLogs:
    """Return what of it stands in a queue yet; no `logs`: all was delivered.

    `unrolled` gains the servers that have to begin another log.
    """
    znodes.store.sync()
    queues = read_stable_queues(znodes, [due.peer])
    standing = {log.name for queue in queues for log in queue.logs}
    logs = tuple(name for name in due.logs if name in standing)
    living = {str(server) for server in znodes.region_servers()}
    lasting = {
        str(queue.server)
        for queue in queues
        if not queue.id.is_recovered and str(queue.server) in living and _lasts(queue, logs, now_ms)
    }
    return msgspec.structs.replace(due, logs=logs, unrolled=tuple(sorted(lasting.union(due.unrolled))))


def _lasts(queue: Queue, due: Container[str], now_ms: int) -> bool:
    """Return whether due logs stand in the queue for long after its newest log was begun."""
    created_ms = [(log.created_ms or 0, log.name in due) for log in queue.logs]
    last_due_ms = max((at_ms for at_ms, is_due in created_ms if is_due), default=None)
    if last_due_ms is None:
        return False
    newest_ms, _ = max(created_ms)
    return now_ms - newest_ms >= max(_ROLL_AGAIN_MS, newest_ms - last_due_ms)


def roll(znodes: HBaseZnodes, due: DueLogs) -> DueLogs:
    """Make the `unrolled` servers begin another log; return the living ones that did not answer."""
    living = {str(server) for server in znodes.region_servers()}
    left = []
    for name in due.unrolled:
        if name not in living:
            continue  # its logs are recovered by others, and drained whole
        server = ServerName.parse(name)
        connection = Connection(server.host, server.port, "AdminService", timeout_s=_ROLL_TIMEOUT_S)
        try:
            connection.call("RollWALWriter", Empty(), Empty)
        except Unavailable:
            left.append(name)
        finally:
            connection.close()
    return msgspec.structs.replace(due, unrolled=tuple(left))


def check_peer(master: MasterClient, peer: str) -> None:
    """Raise NotFound where HBase has no such peer, and Refused where it is disabled: its queues only grow."""
    found = master.peers().get(peer)
    if found is None:
        raise NotFound(f"HBase has no peer {peer}", action="`rtolap sep status` lists those that it has")
    if not found.enabled:
        raise Refused(
            f"peer {peer} is disabled, nothing is delivered",
            action=f"enable it, as by `rtolap sep resume {peer}`",
        )


def advance(znodes: HBaseZnodes, due: DueLogs, *, now_ms: int) -> DueLogs:
    """Roll what is to be rolled, and drop what was delivered: one look, at `now_ms` since 1970."""
    rolled = roll(znodes, due) if due.unrolled else due
    left = still_due(znodes, rolled, now_ms)
    begun = frozenset(due.unrolled).difference(rolled.unrolled)  # their logs come into the queue in a moment
    return msgspec.structs.replace(
        left, unrolled=tuple(server for server in left.unrolled if server not in begun)
    )


def wait_delivered(
    znodes: HBaseZnodes,
    due: DueLogs,
    *,
    timeout_s: float,
    poll_s: float = POLL_S,
    clock: Clock | None = None,
    on_look: Callable[[DueLogs], None] = lambda _: None,
) -> None:
    """Return when all that was due has been delivered. Raises NotYet after `timeout_s`, naming what is left.

    `on_look` is called after each look.
    """
    clock = clock or SystemClock()
    deadline_s = time.monotonic() + timeout_s
    while True:
        due = advance(znodes, due, now_ms=clock.now_ms())
        on_look(due)
        if not due.logs:
            return
        if time.monotonic() + poll_s > deadline_s:
            raise not_yet(due, timeout_s)
        time.sleep(poll_s)


def not_yet(due: DueLogs, waited_s: float) -> NotYet:
    named = ", ".join(due.logs[:_LOGS_NAMED_MAX])
    more = f" and {len(due.logs) - _LOGS_NAMED_MAX} more" if len(due.logs) > _LOGS_NAMED_MAX else ""
    return NotYet(
        f"not all that was written is delivered to {due.peer}",
        expected=f"within {format_duration(int(waited_s * 1000))}",
        found=f"{len(due.logs)} logs in its queues: {named}{more}",
        action=f"`rtolap sep status --peer {due.peer}` says what they wait for",
    )
