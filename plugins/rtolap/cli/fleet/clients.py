"""`rtolap fleet clients` shows how brokers look to our receivers and loaders, and why one is slow."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import msgspec
import typer

from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.fleet.looking import (
    EveryOption,
    SharesOfOption,
    SnapshotOption,
    SourcesOption,
    shares_of,
    windows,
)
from rtolap.cli.fleet.slow import EXIT_SLOW
from rtolap.cli.output import JsonOption
from rtolap.cli.watching import Screen, ShownTable, WatchOption, interrupted
from rtolap.fleet.monitoring.causes import LogDirShare, cause_of
from rtolap.fleet.monitoring.clients import ClientBroker, ClientLook, read_clients
from rtolap.fleet.monitoring.collect import MissingSource
from rtolap.fleet.monitoring.slow import BrokerRequests, SlowRule, judge
from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.fleet.monitoring.stages import STAGE_NAMES, RequestType
from rtolap.fleet.monitoring.tables import milliseconds, number, slow_document
from rtolap.model.durations import parse_duration_ms
from rtolap.servers.metrics_http import PATH

_LEAST_EVERY_MS = 200
COLUMNS = ("client", "topic", "broker", "requests", "rtt", "outbuf", "throttle", "lag", "queued", "behind it")


class SlowCause(msgspec.Struct, frozen=True):
    """The cause of a slow client.

    Attributes:
        stage: Stage at the broker. None where the client itself reports the cause, and where the broker's own
            times are good or unknown.
    """

    text: str
    stage: str | None = None
    log_dir: str | None = None
    broker: dict[str, Any] | None = None


def clients(
    sources: SourcesOption = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(help="Metrics page of a process, http://host:port/metrics. Repeatable."),
    ] = None,
    threshold: Annotated[str, typer.Option(help="A 99th percentile above this is slow.")] = "300ms",
    slow_only: Annotated[bool, typer.Option("--slow", help="Show slow ones only.")] = False,
    snapshot: SnapshotOption = None,
    cluster: SharesOfOption = None,
    every: EveryOption = "5s",
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show how brokers answer our receivers and loaders; of a slow one the broker's stage, and its disk.

    Pages are those of --endpoint and of `clients` in the file of sources; where none is named, of all
    receivers that the coordinators know. They take the cluster's token. It ends with 3 if one is slow."""
    settings = Settings()
    file = sources or settings.fleet_sources
    declared = FleetSources() if file is None else read_sources(file)
    urls = [*(endpoint or ()), *declared.clients] or _receiver_pages()
    headers = {"Authorization": f"Bearer {settings.token()}"}
    threshold_ms, shares = float(parse_duration_ms(threshold)), shares_of(snapshot, cluster, sources)
    found: dict[ClientBroker, SlowCause] = {}
    with ExitStack() as opened:
        opened.enter_context(interrupted(watch))
        screen = Screen(opened, watch=watch, as_json=as_json)
        while True:
            look = read_clients(urls, headers)
            slow = [row for row in look.rows if row.is_slow(threshold_ms)]
            asked = {row.broker for row in slow if row.reason(threshold_ms) is None}
            stages, missing = _broker_rows(declared, every, asked, shares)
            found = {row: _behind(row, threshold_ms, stages.get(row.broker)) for row in slow}
            _show(screen, look, found, missing, slow_only)
            if not watch:
                break
            if not stages:  # reading those has taken as long
                time.sleep(max(_LEAST_EVERY_MS, parse_duration_ms(every)) / 1000)
    if found:
        raise typer.Exit(EXIT_SLOW)


def _receiver_pages() -> list[str]:
    with coordinator_client() as client:
        found = client.metrics_targets()
    return [
        f"http://{address}{PATH}"
        for group in found
        if group.labels.get("service") == "receiver"
        for address in group.targets
    ]


_Stages = tuple[BrokerRequests, Any]


def _broker_rows(
    declared: FleetSources, every: str, brokers: set[int], shares: Mapping[int, Sequence[LogDirShare]]
) -> tuple[dict[int, _Stages], tuple[MissingSource, ...]]:
    """Return by broker its fetches over two looks, and what is behind their slowest stage."""
    read = {broker: known for broker, known in declared.brokers.items() if broker in brokers and known.url}
    if not read:
        return {}, ()
    only = msgspec.structs.replace(declared, brokers=read)
    for look, window in windows(lambda: only, None, every=every, count=2, record=None):
        _, rows = judge({}, window, SlowRule())
        fetches = {row.broker: row for row in rows if row.request is RequestType.FETCH_CONSUMER}
        return {
            broker: (row, cause_of(row, look, window, shares)) for broker, row in fetches.items()
        }, look.missing
    return {}, ()


def _behind(row: ClientBroker, threshold_ms: float, stages: _Stages | None) -> SlowCause:
    reason = row.reason(threshold_ms)
    if reason is not None:
        return SlowCause(reason)
    if stages is None:
        return SlowCause(f"broker {row.broker}, whose own times are not known")
    broker, cause = stages
    document = slow_document(broker, cause)
    if broker.stage is None or not broker.p99_ms_max > threshold_ms:
        own = milliseconds(broker.p99_ms_max) or "nothing"
        text = f"the way to broker {row.broker}, or its whole process: of its own stages it tells {own}"
        return SlowCause(text, broker=document)
    stage = STAGE_NAMES[broker.stage]
    behind = "" if cause is None else f": {cause.text}"
    text = f"broker {row.broker}, {stage} {milliseconds(broker.stage_p99_ms)}{behind}"
    return SlowCause(text, stage, None if cause is None else cause.log_dir, document)


def _show(
    screen: Screen,
    look: ClientLook,
    found: Mapping[ClientBroker, SlowCause],
    missing: Sequence[MissingSource],
    slow_only: bool,
) -> None:
    shown = [row for row in look.rows if row in found or not slow_only]
    shown.sort(
        key=lambda row: (row not in found, -(number(row.answered_p99_ms) or 0.0), row.endpoint, row.topic)
    )
    document = {
        "clients": [
            {**msgspec.to_builtins(row), "is_slow": row in found, "behind": found.get(row)} for row in shown
        ],
        "missing": [*look.missing, *missing],
    }
    notes = [f"not read: {it.source}: {it.reason}" for it in (*look.missing, *missing)]
    title = f"{len(found)} of {len(look.rows)} are slow"
    rows = [_row(row, found.get(row)) for row in shown]
    screen.show(document, [ShownTable(COLUMNS, rows, title)], notes)


def _row(row: ClientBroker, behind: SlowCause | None) -> tuple[Any, ...]:
    return (
        f"{row.service} {row.endpoint.removesuffix('/metrics')}",
        row.topic,
        row.broker,
        row.requests,
        milliseconds(row.rtt_p99_ms),
        milliseconds(row.outbuf_p99_ms),
        milliseconds(row.throttle_p99_ms),
        _records(row.lag_p99),
        _records(row.queued_p99),
        None if behind is None else behind.text,
    )


def _records(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
