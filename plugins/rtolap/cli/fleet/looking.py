"""Options of the commands that look at brokers, and the looks: taken now, or read from a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import open_administration
from rtolap.cli.serving import serve_gauges
from rtolap.cli.watching import check_watched
from rtolap.fleet.monitoring.causes import LogDirShare, log_dir_shares
from rtolap.fleet.monitoring.collect import TIMEOUT_S, StageLook, StageReader
from rtolap.fleet.monitoring.history import append_look, read_looks
from rtolap.fleet.monitoring.metrics import SERVICE, StageMetrics
from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.fleet.monitoring.stages import StageWindow, between
from rtolap.fleet.operations.rates import rate_reader
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import load
from rtolap.model.durations import parse_duration_ms

_LEAST_EVERY_MS = 200

SourcesOption = Annotated[
    Path | None,
    typer.Option("--sources", help="File of the sources of brokers' metrics. Default: RTOLAP_FLEET_SOURCES."),
]
BrokerOption = Annotated[list[int] | None, typer.Option("--broker", min=0, help="Only this one. Repeatable.")]
EveryOption = Annotated[str, typer.Option(help="Time between two looks.")]
RecordOption = Annotated[Path | None, typer.Option("--record", help="Append each look to this file.")]
LooksOption = Annotated[
    Path | None, typer.Option("--looks", help="Read the looks of a file that --record has written.")
]
SnapshotOption = Annotated[
    Path | None,
    typer.Option("--snapshot", help="Saved snapshot of the fleet, for shares of log directories."),
]
SharesOfOption = Annotated[
    str | None,
    typer.Option("--cluster", help="Read those shares from this Kafka cluster, without a snapshot."),
]


def declared_sources(path: Path | None) -> FleetSources:
    """Return the declared sources. Raises DefinitionError where none are declared."""
    file = path or Settings().fleet_sources
    if file is None:
        raise DefinitionError(
            "no sources of the brokers' metrics are declared",
            expected="a file of sources",
            action="name it by --sources or RTOLAP_FLEET_SOURCES",
        )
    return read_sources(file)


def check_options(watch: bool, metrics_port: int | None, looks: Path | None) -> None:
    check_watched(watch, metrics_port)
    if watch and looks is not None:
        raise DefinitionError("looks of a file are shown at once", action="leave out --watch or --looks")


def windows(
    sources: Callable[[], FleetSources],
    looks: Path | None,
    *,
    every: str,
    count: int | None,
    record: Path | None,
) -> Iterator[tuple[StageLook, StageWindow]]:
    """Yield each look but the first, with the window since the look before it. `count` is the number of
    looks; None never ends."""
    taken = _kept(looks) if looks is not None else _taken(sources(), every, count)
    before: StageLook | None = None
    for look in taken:
        if record is not None:
            append_look(record, look)
        if before is not None:
            yield look, between(before.stages, before.at_ms, look.stages, look.at_ms)
        before = look


def _kept(path: Path) -> Iterator[StageLook]:
    found = read_looks(path)
    if len(found) < 2:
        raise DefinitionError(f"{path} has too few looks", expected="two looks or more", found=len(found))
    return iter(found)


def _taken(sources: FleetSources, every: str, count: int | None) -> Iterator[StageLook]:
    every_s = max(_LEAST_EVERY_MS, parse_duration_ms(every)) / 1000
    clock = SystemClock()
    with StageReader(sources) as reader:
        taken = 0
        while count is None or taken < count:
            begun_s = clock.monotonic_s()
            yield reader.look(clock.now_ms())
            taken += 1
            if taken != count:
                time.sleep(max(0.0, begun_s + every_s - clock.monotonic_s()))


def serve_metrics(opened: ExitStack, port: int | None) -> StageMetrics | None:
    return None if port is None else serve_gauges(opened, port, SERVICE, StageMetrics)


def shares_of(
    snapshot: Path | None, cluster: str | None, sources: Path | None
) -> dict[int, list[LogDirShare]]:
    """Return shares by broker, of the recorded fleet or of the cluster as it is, with its rates; nothing
    where neither is named."""
    if snapshot is not None:
        return log_dir_shares(load(snapshot))
    if cluster is None:
        return {}
    with open_administration(cluster) as administration:
        # a broker that is slow may hold up no more than a look
        rates = rate_reader(sources or Settings().fleet_sources, timeout_s=TIMEOUT_S)
        return log_dir_shares(collect_snapshot(administration, SystemClock(), rates))


def missing_notes(look: StageLook) -> list[str]:
    return [f"not read: {missing.source}: {missing.reason}" for missing in look.missing]
