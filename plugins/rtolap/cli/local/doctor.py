"""`rtolap doctor` looks at each server that this host's settings name, and says what mends what is wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.cli.output import EXIT_ERROR, JsonOption, console, print_table
from rtolap.cli.progress import progress_of
from rtolap.doctor.examination import LOOK_S_MAX, examine

app = typer.Typer()

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@app.command()
def doctor(
    as_json: JsonOption = False,
    problems: Annotated[
        bool, typer.Option("--problems", help="Show only what is wrong, not what is well.")
    ] = False,
    each_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds for each look; they are made at the same time.")
    ] = LOOK_S_MAX,
) -> None:
    """Look at this host, ZooKeeper, Kafka, the object store and the services, and say what mends what is
    wrong. It ends with 1 if something failed."""
    with progress_of("looking"):
        found = list(examine(Settings(), each_s=each_s))
    shown = [each for each in found if not problems or each.outcome != "ok"]
    if as_json:
        rows = [(each.subject, each.outcome, each.found, each.action) for each in shown]
        print_table(("subject", "outcome", "found", "action"), rows, as_json=True)
    else:
        for each in shown:
            colour = _COLOURS[each.outcome]
            console.print(f"[{colour}]{each.outcome:<8}[/] ", end="")
            console.print(f"{each.subject}: {each.found}", markup=False)
            if each.action:
                console.print(f"         {each.action}", markup=False, style="bold")
        counts = {outcome: sum(each.outcome == outcome for each in found) for outcome in _COLOURS}
        console.print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    if any(each.outcome == "failed" for each in found):
        raise typer.Exit(EXIT_ERROR)
