"""`rtolap fleet logs` shows what the brokers' logs say of disks, replicas and controllers."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.looking import EveryOption, SourcesOption, check_options
from rtolap.cli.fleet.slow import EXIT_SLOW
from rtolap.cli.output import JsonOption, print_table
from rtolap.cli.serving import MetricsPortOption, serve_gauges
from rtolap.cli.watching import Screen, ShownTable, WatchOption, interrupted
from rtolap.fleet.monitoring.log_findings import LogCounts, RuleCount
from rtolap.fleet.monitoring.log_rules import BY_NAME, RULES
from rtolap.fleet.monitoring.log_watch import LogWatch
from rtolap.fleet.monitoring.metrics import SERVICE, LogMetrics
from rtolap.fleet.monitoring.sources import read_sources
from rtolap.model.durations import parse_duration_ms
from rtolap.model.quantities import instant_text

COLUMNS = ("broker", "rule", "lines", "first", "last", "storm", "log directories", "means", "last line")


def logs(
    sources: SourcesOption = None,
    log: Annotated[
        list[str] | None, typer.Option("--log", help="Log of a broker, BROKER=FILE. Repeatable.")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule. Repeatable.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules, with Kafka's words.")] = False,
    positions: Annotated[
        Path | None, typer.Option(help="Store in this file where reading stopped, and continue from there.")
    ] = None,
    every: EveryOption = "5s",
    watch: WatchOption = False,
    metrics_port: MetricsPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count lines of broker logs that report problems, by rule.

    The first look covers the end of each log, later ones what is new. Exits with 3 if one is serious.
    """
    if rules:
        _print_rules(as_json)
        return
    check_options(watch, metrics_port, None)
    unknown = sorted(set(rule or ()) - BY_NAME.keys())
    if unknown:
        raise DefinitionError("no such rule", expected=", ".join(BY_NAME), found=unknown[0])
    watched = LogWatch(_declared(sources, log or []), positions)
    counts = LogCounts()
    shown: list[RuleCount] = []
    with ExitStack() as opened:
        opened.enter_context(interrupted(watch))
        if metrics_port is not None:
            serve_gauges(opened, metrics_port, SERVICE, lambda metrics: LogMetrics(metrics, counts.rows))
        screen = Screen(opened, watch=watch, as_json=as_json)
        while True:
            counts.add_hits(hit for hit in watched.hits() if not rule or hit.rule in rule)
            shown = counts.rows()
            document = {"rules": [_document(row) for row in shown], "missing": watched.missing}
            notes = [f"not read: {it.source}: {it.reason}" for it in watched.missing]
            screen.show(document, [ShownTable(COLUMNS, [_row(row) for row in shown])], notes)
            watched.keep()
            if not watch:
                break
            time.sleep(parse_duration_ms(every) / 1000)
    if any(row.serious for row in shown):
        raise typer.Exit(EXIT_SLOW)


def _declared(sources: Path | None, named: list[str]) -> dict[int, list[Path]]:
    logs: dict[int, list[Path]] = defaultdict(list)
    for text in named:
        broker, equals, path = text.partition("=")
        if not (equals and path and broker.isdecimal()):
            raise DefinitionError("the broker of a log is not given", expected="BROKER=FILE", found=text)
        logs[int(broker)].append(Path(path))
    file = sources or Settings().fleet_sources
    if file is not None:
        for declared, it in read_sources(file).brokers.items():
            logs[declared] += it.logs
    if not any(logs.values()):
        raise DefinitionError(
            "no log of a broker is known", action="name one by --log, or `logs` in the file of --sources"
        )
    return logs


def _print_rules(as_json: bool) -> None:
    rows = [
        (it.name, "yes" if it.serious else f"from {it.storm} lines on", it.meaning, text.text, text.of_class)
        for it in RULES
        for text in it.texts
    ]
    print_table(("rule", "serious", "means", "Kafka's text", "of class"), rows, as_json=as_json)


def _document(row: RuleCount) -> dict[str, Any]:
    return {
        "broker": row.broker,
        "rule": row.rule,
        "serious": row.serious,
        "lines": row.count,
        "first_ms": row.first_ms,
        "last_ms": row.last_ms,
        "storm_ms": row.storm_ms,
        "log_dirs": row.log_dirs,
        "last_text": row.last_text,
    }


def _row(row: RuleCount) -> tuple[Any, ...]:
    return (
        row.broker,
        row.rule,
        row.count,
        None if row.first_ms is None else instant_text(row.first_ms),
        None if row.last_ms is None else instant_text(row.last_ms),
        None if row.storm_ms is None else instant_text(row.storm_ms),
        ", ".join(row.log_dirs) or None,
        BY_NAME[row.rule].meaning,
        row.last_text,
    )
