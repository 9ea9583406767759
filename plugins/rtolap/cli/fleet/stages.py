"""`rtolap fleet stages` shows what each stage of a request takes, by broker and request type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rtolap.base.errors import DefinitionError
from rtolap.cli.fleet.looking import (
    BrokerOption,
    EveryOption,
    LooksOption,
    RecordOption,
    SourcesOption,
    check_options,
    declared_sources,
    missing_notes,
    serve_metrics,
    windows,
)
from rtolap.cli.output import JsonOption, success, write_file
from rtolap.cli.serving import MetricsPortOption
from rtolap.cli.watching import Screen, ShownTable, WatchOption, interrupted
from rtolap.draw.figure import picture_format
from rtolap.draw.fleet_stages import StageLine, draw_stages
from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.slow import SlowRule, judge, judged_p99_ms
from rtolap.fleet.monitoring.stages import (
    PARTS,
    REQUEST_NAMES,
    STAGE_NAMES,
    Floats,
    RequestType,
    Stage,
    StageWindow,
)
from rtolap.fleet.monitoring.tables import STAGE_COLUMNS, stage_document, stage_rows

_REQUESTS = {name.lower(): request for request, name in REQUEST_NAMES.items()}


def stages(
    sources: SourcesOption = None,
    broker: BrokerOption = None,
    request: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this request in the picture: {', '.join(REQUEST_NAMES.values())}."),
    ] = None,
    every: EveryOption = "2s",
    watch: WatchOption = False,
    record: RecordOption = None,
    looks: LooksOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the looks. The name ends in .svg or .png.")] = None,
    metrics_port: MetricsPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the stages of requests between two looks: mean of exactly those requests, and 99th percentile.

    With --watch and --json, a document for each look."""
    check_options(watch, metrics_port, looks)
    form = None if plot is None else picture_format(plot)
    requests = [_request(name) for name in request or REQUEST_NAMES.values()]
    drawn: list[StageWindow] = []
    with ExitStack() as opened:
        opened.enter_context(interrupted(watch))
        gauges = serve_metrics(opened, metrics_port)
        screen = Screen(opened, watch=watch, as_json=as_json)
        last = None
        taken = windows(
            lambda: declared_sources(sources),
            looks,
            every=every,
            count=None if watch else 2,
            record=record,
        )
        for look, window in taken:
            if plot is not None:
                drawn.append(window)
            if gauges is not None:
                gauges.show(look, window, judge({}, window, SlowRule())[1])
            last = (look, window)
            if watch:
                _show(screen, *last, broker or ())
        if last is not None and not watch:
            _show(screen, *last, broker or ())
    if plot is not None and form is not None:
        lines = stage_lines(drawn, broker or (), requests)
        write_file(plot, draw_stages(lines, form, threshold_ms=SlowRule().threshold_ms))
        if not as_json:
            success(f"{plot}: {len(lines)} panels")


def _show(screen: Screen, look: StageLook, window: StageWindow, only: Sequence[int]) -> None:
    document = {
        "from_ms": window.from_ms,
        "to_ms": window.to_ms,
        "stages": [row for row in stage_document(window) if not only or row["broker"] in only],
        "gauges": look.gauges,
        "missing": look.missing,
    }
    seconds = (window.to_ms - window.from_ms) / 1000
    title = f"Stages of requests over {seconds:.3g} s: mean / p99"
    screen.show(document, [ShownTable(STAGE_COLUMNS, stage_rows(window, only), title)], missing_notes(look))


def _request(name: str) -> RequestType:
    if name.lower() not in _REQUESTS:
        raise DefinitionError("no such request", expected=", ".join(REQUEST_NAMES.values()), found=name)
    return _REQUESTS[name.lower()]


def stage_lines(
    taken: Iterable[StageWindow], brokers: Sequence[int], requests: Sequence[RequestType]
) -> list[StageLine]:
    """Return a line for each broker and request type that ever had a request; for fetches without the long
    poll.
    """
    values: dict[tuple[int, RequestType], list[tuple[int, Floats, float]]] = {}
    for window in taken:
        p99_ms, _ = judged_p99_ms(window)
        for row in np.flatnonzero(window.counts > 0).tolist():
            key = (int(window.brokers[row]), RequestType(window.requests[row]))
            if key[1] in requests and (not brokers or key[0] in brokers):
                point = (window.to_ms, window.mean_ms[row], float(p99_ms[row]))
                values.setdefault(key, []).append(point)
    lines = []
    for (broker, request), points in sorted(values.items()):
        means = np.array([mean_ms for _, mean_ms, _ in points])
        parts = [stage for stage in PARTS if request is RequestType.PRODUCE or stage is not Stage.REMOTE]
        lines.append(
            StageLine(
                f"broker {broker}, {REQUEST_NAMES[request]}",
                np.array([at_ms for at_ms, _, _ in points], np.float64),
                {STAGE_NAMES[stage]: means[:, stage] for stage in parts},
                np.array([p99_ms for _, _, p99_ms in points]),
            )
        )
    return lines
