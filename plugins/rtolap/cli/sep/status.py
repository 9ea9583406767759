"""`rtolap sep status`, `wait` and `plot`: how far behind every queue of every peer is, ours or not, and why;
until all that was written before now is delivered; and a picture of lag by time, of looks that were kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rtolap.base.clock import SystemClock
from rtolap.cli.output import JsonOption, console, report, write_file
from rtolap.cli.sep.cluster import ClusterOption, key_of
from rtolap.cli.serving import MetricsPortOption, serve_gauges
from rtolap.cli.watching import Screen, ShownTable, WatchOption, check_watched, interrupted
from rtolap.draw.figure import picture_format
from rtolap.draw.replication_lag import LagLine, draw_replication_lag
from rtolap.model.durations import parse_duration_ms
from rtolap.model.instants import instant_ms
from rtolap.sep.status.collect import collect
from rtolap.sep.status.history import ReplicationLook, append_look, lag_by_peer, read_looks
from rtolap.sep.status.metrics import SERVICE, ReplicationMetrics
from rtolap.sep.status.model import ReplicationStatus
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.status.summary import PeerSummary, summarize
from rtolap.sep.status.tables import ORDERS, QUEUE_COLUMNS, SUMMARY_COLUMNS, choose, queue_row, summary_row
from rtolap.sep.status.wait import DueLogs, check_peer, due_logs, wait_delivered

# A trend over fewer looks jumps, over more it hides that a listener has just stopped.
_LOOKS_KEPT = 15
_LEAST_EVERY_MS = 200


def status(
    cluster: ClusterOption = "",
    peer: Annotated[list[str] | None, typer.Option(help="Only this peer. Repeatable.")] = None,
    sort: Annotated[str, typer.Option(help=f"Order of the queues: {', '.join(ORDERS)}.")] = "lag",
    limit: Annotated[int, typer.Option(min=0, help="Number of queues to show. 0: only the summary.")] = 20,
    server: Annotated[str, typer.Option(help="Only queues of servers whose names contain this text.")] = "",
    recovered: Annotated[bool, typer.Option("--recovered", help="Only recovered queues.")] = False,
    behind: Annotated[str, typer.Option(help="Only queues that lag at least this much, such as 30s.")] = "0s",
    root_dir: Annotated[
        str | None,
        typer.Option(help="HBase's hbase.rootdir, file:// or hdfs://, for sizes of logs and progress."),
    ] = None,
    jmx: Annotated[
        bool, typer.Option("--jmx/--no-jmx", help="Read failures from each server's page.")
    ] = True,
    jmx_url: Annotated[
        list[str] | None, typer.Option(help="Page of a JVM that runs several servers, http://host:port.")
    ] = None,
    every: Annotated[
        str, typer.Option(help="Time between the two looks from which trends are computed.")
    ] = "1s",
    watch: WatchOption = False,
    record: Annotated[
        Path | None, typer.Option(help="Append the summary of each look to this file, for `rtolap sep plot`.")
    ] = None,
    metrics_port: MetricsPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far behind replication is: a summary per peer, and its queues below.

    With --watch and --json, a document for each look."""
    check_watched(watch, metrics_port)
    key, every_ms = key_of(cluster), max(_LEAST_EVERY_MS, parse_duration_ms(every))
    behind_ms = parse_duration_ms(behind)
    choose((), order=sort)
    with ExitStack() as opened:
        opened.enter_context(interrupted(watch))
        sources = opened.enter_context(
            ReplicationSources.open(key, root_dir=root_dir, with_jmx=jmx, jmx_urls=jmx_url or ())
        )
        gauges = None
        if metrics_port is not None:
            gauges = serve_gauges(opened, metrics_port, SERVICE, ReplicationMetrics)
        screen = Screen(opened, watch=watch, as_json=as_json)
        looks = _looks(sources, tuple(peer or ()), every_ms / 1000, watch)
        for number, (now, before) in enumerate(looks):
            peers = summarize(now, before)
            if record is not None:
                append_look(record, ReplicationLook(now.at_ms, now.cluster, tuple(peers)))
            if gauges is not None:
                gauges.show(now, peers)
            if not watch and number == 0:
                continue  # the second look has trends
            chosen = choose(now.queues, order=sort, server=server, recovered=recovered, behind_ms=behind_ms)
            screen.show(
                {"status": now, "peers": peers, "queues": chosen[:limit]},
                [
                    ShownTable(SUMMARY_COLUMNS, [summary_row(row) for row in peers], _title(now, peers)),
                    ShownTable(QUEUE_COLUMNS, [queue_row(row) for row in chosen[:limit]]),
                ],
                _notes(now, len(chosen) - min(limit, len(chosen))),
            )


def _looks(
    sources: ReplicationSources, only: tuple[str, ...], every_s: float, watch: bool
) -> Iterator[tuple[ReplicationStatus, ReplicationStatus | None]]:
    """Yield each look with the oldest one that is kept beside it: two in all, or without end."""
    clock = SystemClock()
    recent: deque[ReplicationStatus] = deque(maxlen=_LOOKS_KEPT)
    begun_s = time.monotonic()
    while watch or len(recent) < 2:
        if recent:
            time.sleep(max(0.0, begun_s + every_s - time.monotonic()))
            begun_s = time.monotonic()
        now = collect(sources, clock.now_ms(), only=only, before=recent[-1] if recent else None)
        yield now, recent[0] if recent else None
        recent.append(now)


def _title(status: ReplicationStatus, peers: Sequence[PeerSummary]) -> str:
    return f"{status.cluster}: {status.servers} region servers, {len(peers)} peers"


def _notes(status: ReplicationStatus, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{hidden} more queues; --limit shows more, --sort, --behind and --server choose"
    for missing in status.missing:
        yield f"not asked: {missing.source}: {missing.reason}"


def wait(
    name: Annotated[str, typer.Argument(help="Name of the subscription, or of another peer of HBase.")],
    timeout: Annotated[str, typer.Option(help="Time after which to give up, such as 10m.")] = "10m",
    before: Annotated[
        str | None, typer.Option(help="Wait for edits before this past instant. Default: now.")
    ] = None,
    cluster: ClusterOption = "",
    as_json: JsonOption = False,
) -> None:
    """Wait until all edits written before now are delivered.

    Each region server has to begin another log, and is requested again while the wait lasts. Exits with 1
    when the time is over.
    """
    timeout_ms = parse_duration_ms(timeout)
    with ReplicationSources.open(key_of(cluster)) as sources:
        check_peer(sources.master, name)
        due = due_logs(sources.znodes, name, before_ms=None if before is None else instant_ms(before))
        wait_delivered(
            sources.znodes, due, timeout_s=timeout_ms / 1000, on_look=lambda left: _tell(due, left, as_json)
        )
    delivered = {"peer": name, "delivered": True, "logs": due.logs}
    report(delivered, f"all that was written is delivered to {name}", as_json=as_json)


def _tell(due: DueLogs, left: DueLogs, as_json: bool) -> None:
    if left.logs and not as_json and console.is_terminal:
        console.print(f"{len(left.logs)} of {len(due.logs)} logs are waited for", end="\r")


def plot(
    looks: Annotated[Path, typer.Argument(help="File of looks that `status --record` has written.")],
    picture: Annotated[Path, typer.Argument(help="File to write, .svg or .png.")],
    peer: Annotated[list[str] | None, typer.Option(help="Only this peer. Repeatable.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the lag of peers: of each, the queue that lags most and the median of its queues."""
    form = picture_format(picture)
    lines = [
        LagLine(
            lag.peer,
            np.asarray(lag.at_ms, np.float64),
            np.asarray(lag.worst_ms, np.float64),
            np.asarray(lag.median_ms, np.float64),
        )
        for lag in lag_by_peer(read_looks(looks), peer or ())
    ]
    write_file(picture, draw_replication_lag(lines, form))
    drawn = {"picture": picture, "peers": [line.peer for line in lines]}
    report(drawn, f"{picture}: {len(lines)} peers", as_json=as_json)
