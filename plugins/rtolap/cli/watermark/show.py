"""`rtolap watermark show`: the levels of one application or all, once or as they change."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape

from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, success, warn
from rtolap.cli.watermark.standing import standing
from rtolap.cli.watermark.words import complete_application
from rtolap.protocols.coordinator.client import CoordinatorClient

WATCH_S = 1.0
_NOTHING = "no application is declared"


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
        standings = [standing(client, name, units=units) for name in _names(client, application)]
    if as_json:
        print_json([application_standing.as_json() for application_standing in standings])
        return
    for application_standing in standings:
        console.print(application_standing.table())
        for note in application_standing.notes():
            console.print(note, highlight=False)
        for problem in application_standing.info.problems:
            warn(problem)
    if not standings:
        success(_NOTHING)


def _names(client: CoordinatorClient, application: str | None) -> list[str]:
    return client.applications() if application is None else [application]


def _watch(client: CoordinatorClient, application: str | None, units: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                standings = [standing(client, name, units=units) for name in _names(client, application)]
                shown: list[RenderableType] = []
                for application_standing in standings:
                    shown += [
                        application_standing.table(),
                        *map(escape, (*application_standing.notes(), *application_standing.info.problems)),
                    ]
                live.update(Group(*shown) if shown else _NOTHING, refresh=True)
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return
