"""All that was written before an instant has been delivered: the criterion, and waiting for it.

A region server enters each log into the queues of its peers before it writes to it, and takes it out when
all of it was shipped and confirmed. So at the instant every undelivered edit is in a log that stands in a
queue of the peer, and that moment's logs are *due*:

    delivered  ⇔  no log that was due at the instant stands in any queue of the peer, recovered ones too

Queues move when a server takes over what another left; the logs keep their names, so names are what is
followed. The newest log of each server is written on and would stay, so servers with due logs are requested
to begin another (HBase's `wal_roll`), once, after the due logs were noted. With an instant in the past, logs
that were begun after it by their server's clock are not due.

That is exact for what was acknowledged before the instant, and never early; what was written shortly after it
may be waited for too. Nothing is measured: no clock of ours, no size of a file, no age.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from rtolap.base.errors import NotFound, NotYet, Refused, Unavailable
from rtolap.model.durations import format_duration
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.connection import Connection
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.queues import read_stable_queues
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName

POLL_S = 1.0
_ROLL_TIMEOUT_S = 10.0
_LOGS_NAMED_MAX = 3


class DueLogs(msgspec.Struct, frozen=True):
    """`unrolled`: servers, host,port,startcode, that have yet to begin another log."""

    peer: str
    logs: tuple[str, ...]
    unrolled: tuple[str, ...] = ()


def due_logs(znodes: HBaseZnodes, peer: str, *, before_ms: int | None = None) -> DueLogs:
    """Logs with what was written before now, or before `before_ms`, and is not known to be delivered.

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


def still_due(znodes: HBaseZnodes, due: DueLogs) -> DueLogs:
    """Return what of it stands in a queue yet; no `logs`: all was delivered."""
    znodes.store.sync()
    standing = {log.name for queue in read_stable_queues(znodes, [due.peer]) for log in queue.logs}
    return msgspec.structs.replace(due, logs=tuple(name for name in due.logs if name in standing))


def roll(znodes: HBaseZnodes, due: DueLogs) -> DueLogs:
    """Have the `unrolled` servers begin another log; return those left that did not answer and yet live."""
    living = {str(server) for server in znodes.region_servers()}
    left = []
    for name in due.unrolled:
        if name not in living:
            continue  # its logs are recovered by others, and drained whole
        server = ServerName.parse(name)
        connection = Connection(server.host, server.port, "AdminService", timeout_s=_ROLL_TIMEOUT_S)
        try:
            connection.call(
                "RollWALWriter", admin_pb2.RollWALWriterRequest(), admin_pb2.RollWALWriterResponse
            )
        except Unavailable:
            left.append(name)
        finally:
            connection.close()
    return msgspec.structs.replace(due, unrolled=tuple(left))


def check_peer(master: MasterClient, peer: str) -> None:
    """Raises NotFound where HBase has no such peer, Refused where it is disabled: its queues only grow."""
    found = master.peers().get(peer)
    if found is None:
        raise NotFound(f"HBase has no peer {peer}", action="`rtolap sep status` lists those that it has")
    if not found.enabled:
        raise Refused(
            f"peer {peer} is disabled, nothing is delivered",
            action=f"enable it, as by `rtolap sep resume {peer}`",
        )


def advance(znodes: HBaseZnodes, due: DueLogs) -> DueLogs:
    """One look: roll what is to be rolled, and drop what was delivered."""
    return still_due(znodes, roll(znodes, due) if due.unrolled else due)


def wait_delivered(
    znodes: HBaseZnodes,
    due: DueLogs,
    *,
    timeout_s: float,
    poll_s: float = POLL_S,
    on_look: Callable[[DueLogs], None] = lambda _: None,
) -> None:
    """Return when all that was due has been delivered. Raises NotYet after `timeout_s`, naming what is left.

    `on_look` is called after each look.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        due = advance(znodes, due)
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
