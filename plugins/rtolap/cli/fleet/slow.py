"""`rtolap fleet slow` shows which brokers are slow, in which stage, and why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from rtolap.cli.fleet.looking import (
    BrokerOption,
    EveryOption,
    LooksOption,
    RecordOption,
    SharesOfOption,
    SnapshotOption,
    SourcesOption,
    check_options,
    declared_sources,
    missing_notes,
    serve_metrics,
    shares_of,
    windows,
)
from rtolap.cli.output import JsonOption
from rtolap.cli.serving import MetricsPortOption
from rtolap.cli.watching import Screen, ShownTable, WatchOption, interrupted
from rtolap.fleet.monitoring.causes import Cause, cause_of
from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.slow import BrokerRequests, BrokerStanding, Key, SlowRule, SlowState, judge
from rtolap.fleet.monitoring.tables import SLOW_COLUMNS, milliseconds, slow_document, slow_row
from rtolap.model.durations import parse_duration_ms

EXIT_SLOW = 3
_DEFAULTS = SlowRule()


def slow(
    sources: SourcesOption = None,
    broker: BrokerOption = None,
    threshold: Annotated[str, typer.Option(help="A 99th percentile above this is slow.")] = "300ms",
    recovered: Annotated[str, typer.Option(help="A percentile at or below this has recovered.")] = "240ms",
    requests_min: Annotated[
        int,
        typer.Option(min=1, help="Number of requests between two looks below which a look does not count."),
    ] = _DEFAULTS.requests_min,
    readings: Annotated[
        int,
        typer.Option(
            min=1, help="Number of consecutive looks after which a broker is slow, or has recovered."
        ),
    ] = _DEFAULTS.looks,
    all_brokers: Annotated[bool, typer.Option("--all", help="Show healthy brokers too.")] = False,
    snapshot: SnapshotOption = None,
    cluster: SharesOfOption = None,
    every: EveryOption = "5s",
    watch: WatchOption = False,
    record: RecordOption = None,
    looks: LooksOption = None,
    metrics_port: MetricsPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show brokers that are slow at reads or writes, and why.

    It takes one look more than --readings, or goes on with --watch. Exits with 3 if one is slow. With
    --watch and --json, it prints a document for each look."""
    check_options(watch, metrics_port, looks)
    rule = SlowRule(
        float(parse_duration_ms(threshold)), float(parse_duration_ms(recovered)), requests_min, readings
    )
    shares = shares_of(snapshot, cluster, sources)
    standings: dict[Key, BrokerStanding] = {}
    found: list[tuple[BrokerRequests, Cause | None]] = []
    with ExitStack() as opened:
        opened.enter_context(interrupted(watch))
        gauges = serve_metrics(opened, metrics_port)
        screen = Screen(opened, watch=watch, as_json=as_json)
        taken = windows(
            lambda: declared_sources(sources),
            looks,
            every=every,
            count=None if watch else readings + 1,
            record=record,
        )
        last: StageLook | None = None
        for look, window in taken:
            standings, rows = judge(standings, window, rule)
            if gauges is not None:
                gauges.show(look, window, rows)
            found = [
                (row, cause_of(row, look, window, shares) if row.standing.state != SlowState.NORMAL else None)
                for row in rows
                if not broker or row.broker in broker
            ]
            last = look
            if watch:
                _show(screen, look, found, rule, all_brokers)
        if last is not None and not watch:
            _show(screen, last, found, rule, all_brokers)
    if not watch and any(row.is_slow for row, _ in found):
        raise typer.Exit(EXIT_SLOW)


def _show(
    screen: Screen,
    look: StageLook,
    found: Sequence[tuple[BrokerRequests, Cause | None]],
    rule: SlowRule,
    all_brokers: bool,
) -> None:
    shown = [pair for pair in found if all_brokers or pair[0].standing.state is not SlowState.NORMAL]
    notes = missing_notes(look)
    notes += [
        f"{row.name}: a quota mutes clients for {milliseconds(row.throttle_p99_ms)}"
        for row, _ in found
        if row.throttle_p99_ms > rule.threshold_ms
    ]
    few = [row for row, _ in found if 0 <= row.requests < rule.requests_min]
    if found and len(few) == len(found):
        notes.append(f"no broker had {rule.requests_min} requests between two looks: nothing is known")
    slow_brokers = sorted({row.broker for row, _ in found if row.is_slow})
    title = f"{len(slow_brokers)} of {len({row.broker for row, _ in found})} brokers are slow"
    document = {
        "at_ms": look.at_ms,
        "rule": rule,
        "slow_brokers": slow_brokers,
        "rows": [slow_document(*pair) for pair in shown],
        "missing": look.missing,
    }
    screen.show(document, [ShownTable(SLOW_COLUMNS, [slow_row(*pair) for pair in shown], title)], notes)
