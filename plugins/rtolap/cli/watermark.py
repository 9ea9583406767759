"""`rtolap watermark`: how far an application is, who holds it back, and letting a window go."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.tree import Tree

from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, success, warn
from rtolap.cli.segments import instant_ms
from rtolap.model.application import Application
from rtolap.model.durations import format_duration
from rtolap.wire.watermark import ApplicationInfo, ApplicationWatermarks, LevelWatermark

app = typer.Typer(no_args_is_help=True, help="Watermarks of applications.")

Name = Annotated[str, typer.Argument(help="Name of the application.")]
WindowEnd = Annotated[str, typer.Argument(help="The window's end: 2013-01-31T10:00 (UTC) or milliseconds.")]


@app.command()
def show(
    application: Annotated[str | None, typer.Argument(help="One application; else all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Input and output watermark of every level, and the global one."""
    with coordinator_client() as client:
        names = client.applications() if application is None else [application]
        found = [(client.application_watermarks(name), client.application(name)) for name in names]
    if as_json:
        print_json([{**marks.model_dump(mode="json"), "problems": info.problems} for marks, info in found])
        return
    for marks, info in found:
        rows = [
            (name, _at(one.input_ms), _at(one.output_ms), _behind(marks, one.output_ms))
            for name, one in _ordered(marks, info)
        ]
        rows.append(("global", None, _at(marks.global_ms), _behind(marks, marks.global_ms)))
        print_table(("level", "input", "output", "behind the clock"), rows, title=marks.application)
        if marks.approved_until_ms is not None:
            console.print(f"windows up to {_at(marks.approved_until_ms)} were let go", highlight=False)
        for problem in info.problems:
            warn(problem)
    if not found:
        success("no application is declared")


@app.command()
def hosts(
    application: Name,
    level: Annotated[str | None, typer.Option(help="The source; needed where there are several.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many hosts.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """The hosts that are furthest behind."""
    with coordinator_client() as client:
        info = client.application_hosts(application, level, limit)
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    rows = [
        (
            one.host,
            _at(one.latest_ms),
            _span(one.behind_ms),
            one.share_ppm,
            "yes" if one.holds else "",
            one.hint,
        )
        for one in info.behind
    ]
    print_table(("host", "read up to", "behind", "owes ppm", "holds", "hint"), rows)
    console.print(
        f"{info.level} is at {_at(info.watermark_ms) or 'unknown'}; {info.counting} hosts count, "
        f"{info.unseen} never seen, {info.holding} hold the watermark",
        highlight=False,
    )
    if info.awaited_partitions:
        waiting = ", ".join(map(str, info.awaited_partitions))
        warn(f"partitions that have not reported to this leader yet: {waiting}")
    if info.list_problem:
        warn(info.list_problem)


@app.command()
def topology(application: Name, as_json: JsonOption = False) -> None:
    """The levels from the sources down, each with its output."""
    with coordinator_client() as client:
        info, marks = client.application(application), client.application_watermarks(application)
    declared = msgspec.convert(info.definition, Application)
    if as_json:
        levels = {
            name: {"upstreams": declared.upstreams(name), **_level(marks, name)}
            for name in declared.in_order()
        }
        print_json({"application": application, "global_ms": marks.global_ms, "levels": levels})
        return
    tree = Tree(f"[bold]{escape(application)}[/bold]  global {_at(marks.global_ms) or 'unknown'}")
    for source in declared.sources:
        _branch(tree, declared, marks, source.name, f" ({source.rule.kind})")
    console.print(tree, highlight=False)


@app.command()
def explain(application: Name, window_end: WindowEnd, as_json: JsonOption = False) -> None:
    """May the window that ends there close, and if not, what does it wait for?"""
    with coordinator_client() as client:
        said = client.explain_window(application, instant_ms(window_end))
    if as_json:
        print_json(said.model_dump(mode="json"))
        return
    at = _at(said.window_end_ms)
    if said.may_close:
        success(f"the window that ends at {at} may close" + (", let go by a person" if said.approved else ""))
    else:
        warn(f"the window that ends at {at} waits")
    for reason in said.reasons:
        console.print(f"  {reason}", highlight=False, markup=False)
    for source, expected_ppm in said.expected_missing_ppm.items():
        console.print(
            f"  {source}: {expected_ppm} ppm of the window expected to be missing, "
            f"at most {said.bound_ppm[source]} ppm",
            highlight=False,
            markup=False,
        )


@app.command()
def approve(
    application: Name,
    until: WindowEnd,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    by: Annotated[str | None, typer.Option("--by", help="Who; by default the user of this shell.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the windows that end at or before UNTIL close as they are, although events may be missing."""
    until_ms = instant_ms(until)
    with coordinator_client() as client:
        said = client.explain_window(application, until_ms)
        if not yes:
            for line in said.reasons:
                console.print(f"  {line}", highlight=False, markup=False)
            typer.confirm(f"Let windows of {application} up to {_at(until_ms)} go?", abort=True)
        info = client.approve_windows(application, until_ms, by or getpass.getuser(), reason)
    if as_json:
        print_json([approval.model_dump(mode="json") for approval in info.approvals])
    else:
        success(f"windows of {application} up to {_at(until_ms)} may close; recorded")


def _branch(
    tree: Tree, declared: Application, marks: ApplicationWatermarks, name: str, note: str = ""
) -> None:
    output = _at(_level(marks, name)["output_ms"]) or "unknown"
    branch = tree.add(f"{escape(name)}{note}  {output}")
    for edge in declared.edges:
        if edge[0] == name:
            _branch(branch, declared, marks, edge[1])


def _ordered(marks: ApplicationWatermarks, info: ApplicationInfo) -> list[tuple[str, LevelWatermark]]:
    declared = msgspec.convert(info.definition, Application)
    return [(name, marks.levels[name]) for name in declared.in_order() if name in marks.levels]


def _level(marks: ApplicationWatermarks, name: str) -> dict[str, int | None]:
    found = marks.levels.get(name)
    return {
        "input_ms": None if found is None else found.input_ms,
        "output_ms": None if found is None else found.output_ms,
    }


def _behind(marks: ApplicationWatermarks, instant: int | None) -> str | None:
    return None if instant is None else _span(marks.now_ms - instant)


def _span(duration_ms: int | None) -> str | None:
    if duration_ms is None:
        return None
    return "0s" if duration_ms < 1000 else format_duration(duration_ms // 1000 * 1000)


def _at(instant: int | None) -> str | None:
    if instant is None:
        return None
    return datetime.fromtimestamp(instant / 1000, UTC).isoformat(timespec="milliseconds")
