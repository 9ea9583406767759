"""`rtolap watermark history` and `plot`: what watermarks were, and who held them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from rtolap.base.errors import DefinitionError
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, success, warn, write_file
from rtolap.cli.watermark.words import Name, at, complete_application, complete_level, span
from rtolap.draw.figure import picture_format
from rtolap.draw.timeline import Timeline, Trace, timeline
from rtolap.draw.timeline_figure import draw_timeline
from rtolap.model.durations import parse_duration_ms
from rtolap.model.instants import instant_ms
from rtolap.protocols.watermark.messages import ApplicationHistory

SAMPLES = 4_000  # an hour by the second, and a pixel or two of a picture each

Since = Annotated[
    str, typer.Option(help="Begin of the time shown: an instant, or a duration before now (1h, 15m).")
]
Until = Annotated[
    str | None,
    typer.Option(help="End of the time shown: an instant, or a duration before now. Default: now."),
]


def history(
    application: Name,
    level: Annotated[str | None, typer.Option(help="Only this level.", autocompletion=complete_level)] = None,
    since: Since = "1h",
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of hosts and units to name per level.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show what held the watermarks back, from when to when, and how far behind they were.

    With --json the samples themselves, for `plot --from`. The owner remembers a day, and takes it along.
    """
    application_history = _ask(application, since, until, level)
    if as_json:
        print_json(application_history)
        return
    shown = timeline(application_history)
    print_table(
        ("level", "held by", "from", "until", "samples", "behind up to"),
        [
            (panel.level, holder.name, at(holder.from_ms), at(holder.until_ms), holder.held, _behind(holder))
            for panel in shown.panels
            for holder in panel.holders[:limit]
        ],
        title=application_history.application,
    )
    _remembered(application_history)


def plot(
    application: Annotated[
        str | None,
        typer.Argument(help="Name of the application; not with --from.", autocompletion=complete_application),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write, .svg or .png. Default: APPLICATION.svg."),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Only this level. Repeatable.", autocompletion=complete_level),
    ] = None,
    since: Since = "1h",
    until: Until = None,
    window: Annotated[
        str | None, typer.Option(help="Mark the times at which windows of this length (5m) could close.")
    ] = None,
    lag: Annotated[
        bool, typer.Option("--lag", help="Draw the distance behind the clock, not event time.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", help="File with the output of `history --json`. - for standard input."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw watermarks against the wall clock, a panel per level, with the hosts and units that held them."""
    if (application is None) == (source is None):
        raise typer.BadParameter("name an application, or a file with --from")
    if out is not None:
        picture_format(out)  # before anybody is asked
    window_ms = None if window is None else parse_duration_ms(window)
    if window_ms == 0:
        raise DefinitionError("a window has a length", found=repr(window))
    if application is not None:
        application_history = _ask(application, since, until, level[0] if level and len(level) == 1 else None)
    else:
        application_history = _read(source or "-")
    shown = timeline(application_history, level or (), window_ms)
    target = out or Path(f"{application_history.application}.svg")
    picture = draw_timeline(shown, picture_format(target), lag=lag)
    write_file(target, picture)
    if as_json:
        print_json({"file": target, "samples": len(application_history.at_ms), **_summary(shown)})
        return
    success(f"{target}: {len(shown.panels)} levels, {len(application_history.at_ms)} samples")
    _remembered(application_history)


def _ask(application: str, since: str, until: str | None, level: str | None) -> ApplicationHistory:
    with coordinator_client() as client:
        now_ms = client.application_watermarks(application).now_ms  # spans are back from the owner's clock
        return client.application_history(
            application,
            since_ms=max(_back_from(now_ms, since), 0),
            until_ms=None if until is None else max(_back_from(now_ms, until), 0),
            level=level,
            samples=SAMPLES,
        )


def _back_from(now_ms: int, text: str) -> int:
    try:
        return now_ms - parse_duration_ms(text)
    except DefinitionError:
        return instant_ms(text)


def _read(source: str) -> ApplicationHistory:
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return ApplicationHistory.model_validate_json(data)
    except OSError as error:
        raise DefinitionError("the history cannot be read", found=str(error)) from error
    except ValidationError as error:
        raise DefinitionError(
            f"{source} is not a history of watermarks",
            found=f"{error.error_count()} mistakes, the first: {error.errors()[0]['msg']}",
            action="write one with `rtolap watermark history APPLICATION --json`",
        ) from error


def _summary(shown: Timeline) -> dict[str, object]:
    return {
        "application": shown.application,
        "levels": {
            panel.level: [
                {"name": entry.name, "from_ms": entry.from_ms, "until_ms": entry.until_ms, "held": entry.held}
                | {"behind_max_ms": entry.behind_max_ms}
                for entry in panel.holders
            ]
            for panel in shown.panels
        },
        "windows": [
            {"end_ms": entry.end_ms, "could_close_at_ms": entry.at_ms, "let_go_by": entry.by}
            for entry in shown.closings
        ],
    }


def _remembered(shown: ApplicationHistory) -> None:
    if shown.since_ms is None or not shown.at_ms:
        warn("the owner remembers nothing of that time")
    else:
        console.print(f"{len(shown.at_ms)} samples; the owner remembers since {at(shown.since_ms)}")


def _behind(trace: Trace) -> str | None:
    return "never seen" if trace.behind_max_ms is None else span(trace.behind_max_ms)
