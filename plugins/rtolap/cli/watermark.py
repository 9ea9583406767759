"""`rtolap watermark`: how far an application is, who holds it back, and letting a window go."""

from __future__ import annotations

import getpass
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape

from rtolap.cli import watermark_history
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, error_console, print_json, print_table, success, warn
from rtolap.cli.watermark_standing import UNITS_MAX, standing, unit_state
from rtolap.cli.watermark_topology import topology
from rtolap.cli.watermark_words import Name, WindowEnd, at, complete_application, complete_level, span
from rtolap.model.instants import instant_ms
from rtolap.wire.coordinator_client import CoordinatorClient
from rtolap.wire.watermark import Explanation

app = typer.Typer(no_args_is_help=True, help="Watermarks of applications.")

WATCH_S = 1.0
_NOTHING = "no application is declared"

Level = Annotated[str | None, typer.Option(help="Only this one.", autocompletion=complete_level)]


@app.command()
def show(
    application: Annotated[
        str | None,
        typer.Argument(help="One application; else all.", autocompletion=complete_application),
    ] = None,
    units: Annotated[bool, typer.Option("--units", help="And every unit: processor/key group.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Every second, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Input and output watermark of every level, and the global one."""
    if watch and as_json:
        raise typer.BadParameter("--watch shows text; ask again and again for --json")
    with coordinator_client() as client:
        if watch:
            _watch(client, application, units)
            return
        found = [standing(client, name, units=units) for name in _names(client, application)]
    if as_json:
        print_json([one.as_json() for one in found])
        return
    for one in found:
        console.print(one.table())
        for note in one.notes():
            console.print(note, highlight=False)
        for problem in one.info.problems:
            warn(problem)
    if not found:
        success(_NOTHING)


@app.command()
def hosts(
    application: Name,
    level: Annotated[
        str | None,
        typer.Option(help="The source; needed where there are several.", autocompletion=complete_level),
    ] = None,
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
        (host.host, at(host.latest_ms), span(host.behind_ms), host.share_ppm, _yes(host.holds), host.hint)
        for host in info.behind
    ]
    if rows:
        print_table(("host", "read up to", "behind", "owes ppm", "holds", "hint"), rows)
    elif not info.counting:
        success(f"no host of {info.level} counts; a source with the rule `partitions` has none")
    else:
        success(f"no host of {info.level} is behind")
    console.print(
        f"{info.level} is at {at(info.watermark_ms) or 'unknown'}; {info.counting} hosts count, "
        f"{info.unseen} never seen, {info.holding} hold the watermark",
        highlight=False,
    )
    if info.awaited_partitions:
        waiting = ", ".join(map(str, info.awaited_partitions))
        warn(f"partitions that have not reported to this leader yet: {waiting}")
    if info.list_problem:
        warn(info.list_problem)


@app.command()
def units(
    application: Name,
    level: Level = None,
    limit: Annotated[int, typer.Option(min=1, max=UNITS_MAX, help="At most so many units.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """The units of the levels, processor and key group, those with the oldest work first."""
    with coordinator_client() as client:
        info = client.application_units(application, level, limit)
    if as_json:
        print_json(info.model_dump(mode="json"))
        return
    if not info.units:
        success(f"no unit of {level or application} reports")
        return
    rows = [
        (
            one.level,
            one.processor,
            one.key_group,
            at(one.oldest_work_ms),
            span(one.behind_ms),
            unit_state(one),
        )
        for one in info.units
    ]
    print_table(("level", "processor", "key group", "oldest work", "behind", "state"), rows)
    numbers = ", ".join(f"{name} {count}" for name, count in info.counts.items())
    console.print(f"units: {numbers}", highlight=False, markup=False)


@app.command()
def explain(application: Name, window_end: WindowEnd, as_json: JsonOption = False) -> None:
    """May the window that ends there close, and if not, what does it wait for?"""
    with coordinator_client() as client:
        said = client.explain_window(application, instant_ms(window_end))
    if as_json:
        print_json(said.model_dump(mode="json"))
        return
    ends = at(said.window_end_ms)
    if said.may_close:
        success(
            f"the window that ends at {ends} may close" + (", let go by a person" if said.approved else "")
        )
    else:
        warn(f"the window that ends at {ends} waits")
    for line in _reasons(said):
        console.print(f"  {line}", highlight=False, markup=False)


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
        if not yes:
            for line in _reasons(client.explain_window(application, until_ms)):
                error_console.print(f"  {line}", highlight=False, markup=False)
            typer.confirm(f"Let windows of {application} up to {at(until_ms)} go?", abort=True, err=True)
        info = client.approve_windows(application, until_ms, by or getpass.getuser(), reason)
    if as_json:
        print_json([approval.model_dump(mode="json") for approval in info.approvals])
    else:
        success(f"windows of {application} up to {at(until_ms)} may close; recorded")


app.command()(topology)
app.command()(watermark_history.history)
app.command()(watermark_history.plot)


def _yes(true: bool) -> str:
    return "yes" if true else ""


def _names(client: CoordinatorClient, application: str | None) -> list[str]:
    return client.applications() if application is None else [application]


def _watch(client: CoordinatorClient, application: str | None, units: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                found = [standing(client, name, units=units) for name in _names(client, application)]
                shown: list[RenderableType] = []
                for one in found:
                    shown += [one.table(), *map(escape, (*one.notes(), *one.info.problems))]
                live.update(Group(*shown) if shown else _NOTHING, refresh=True)
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return


def _reasons(said: Explanation) -> list[str]:
    missing = (
        f"{source}: {expected_ppm} ppm of the window expected to be missing, "
        f"at most {said.bound_ppm[source]} ppm"
        for source, expected_ppm in said.expected_missing_ppm.items()
    )
    return [*said.reasons, *missing]
