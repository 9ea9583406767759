"""The answers of the route of change capture, as JSON. Times are milliseconds since the epoch."""

from __future__ import annotations

import msgspec

from rtolap.airflow.page.tasks import TaskLink
from rtolap.airflow.shared_processes import SharedProcess


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of a region server for a peer. None: not known.

    Attributes:
        recovered_from: the failed servers that had it, the last one first.
        log: the write-ahead log that is shipped now, up to `position_bytes`.
        log_bytes: size of that log.
        left_bytes: of all logs of the queue, not shipped yet, edits of other tables with it.
        is_lower_bound: a log is being written on HDFS, which says its size only in part.
        lag_ms: age of the oldest edit that is not shipped.
        reason: what shipping waits for; empty while it goes on.
    """

    cluster: str
    peer: str
    server: str
    recovered_from: tuple[str, ...]
    logs: int | None
    log: str
    position_bytes: int | None
    log_bytes: int | None
    left_bytes: int | None
    is_lower_bound: bool
    lag_ms: int | None
    last_shipped_ms: int | None
    reported_ms: int | None
    reason: str
    since_ms: int | None


class CapturePeer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer of HBase, of a subscription or of somebody else.

    Attributes:
        lag_trend: milliseconds a second between two looks; below 0 the lag shrinks. None: not known.
        catch_up_ms: 0 where all is shipped; None where that is not known, or where the lag grows.
        waits: what queues wait for, with the number of queues.
    """

    cluster: str
    peer: str
    enabled: bool | None
    sinks: int | None
    queues: int
    recovered_queues: int
    lag_ms: int | None
    lag_trend: float | None
    catch_up_ms: int | None
    waits: dict[str, int]


class PoisonEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that keeps failing, or a row whose events wait among the dead letters since one did.

    Attributes:
        apart: it is a row that was set apart.
        tries: of the event alone; 0 for a row.
        since_ms: of a row; None for an event.
    """

    subscription: str
    apart: bool
    row: str
    tries: int = 0
    since_ms: int | None = None
    reason: str


class CaptureSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription. Counts are since its consumers deliver; None while none has published any.

    Attributes:
        state: of the subscription; `not made` for a definition that no cluster has.
        task: of its process at the agent; None where no task runs one.
    """

    cluster: str
    name: str
    state: str
    problem: str
    follows: str
    listener: str
    start_ms: int | None = None
    consumers: tuple[SharedProcess, ...] = ()
    delivered: int | None = None
    dead_letters: int | None = None
    failing_events: int | None = None
    rows_apart: int | None = None
    task: TaskLink | None


class CaptureCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of HBase.

    Attributes:
        error: why nothing of it is known; empty where something is.
        missing: what could not be read of it, with the reason.
    """

    address: str
    servers: int = 0
    error: str = ""
    missing: tuple[str, ...] = ()
    queues_cut: int = 0


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """Change capture on one page.

    Attributes:
        agent_error: why processes are missing; empty if they are not.
        definitions_error: why this host's definitions are missing; empty if they are not.
    """

    now_ms: int
    clusters: tuple[CaptureCluster, ...]
    peers: tuple[CapturePeer, ...]
    queues: tuple[Queue, ...]
    subscriptions: tuple[CaptureSubscription, ...]
    poison: tuple[PoisonEvent, ...]
    agent_error: str = ""
    definitions_error: str = ""
