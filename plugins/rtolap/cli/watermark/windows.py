"""`rtolap watermark explain` and `approve`: whether a window may close, and approving that."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, error_console, print_json, report, success, warn
from rtolap.cli.watermark.words import Name, at
from rtolap.model.instants import instant_ms
from rtolap.protocols.watermark.messages import Explanation

EXIT_WAITS = 3

WindowEnd = Annotated[
    str,
    typer.Argument(help="The window's end: 2013-01-31T10:00 (UTC) or milliseconds."),
]


def explain(application: Name, window_end: WindowEnd, as_json: JsonOption = False) -> None:
    """Show whether the window that ends at WINDOW_END may close, and what it waits for.

    Exits with 3 while it waits.
    """
    with coordinator_client() as client:
        explanation = client.explain_window(application, instant_ms(window_end))
    if as_json:
        print_json(explanation)
    else:
        _tell(explanation)
    if not explanation.may_close:
        raise typer.Exit(EXIT_WAITS)


def _tell(explanation: Explanation) -> None:
    ends = at(explanation.window_end_ms)
    if explanation.may_close:
        success(
            f"the window that ends at {ends} may close"
            + (", approved by a person" if explanation.approved else "")
        )
    else:
        warn(f"the window that ends at {ends} waits")
    for line in _reasons(explanation):
        console.print(f"  {line}", markup=False)


def approve(
    application: Name,
    until: WindowEnd,
    reason: Annotated[str, typer.Option("--reason", help="Reason, which is recorded.")],
    by: Annotated[
        str | None, typer.Option("--by", help="Name of the person. Default: the user of this shell.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Approve that windows which end at or before UNTIL close as they are, although events may be missing."""
    until_ms = instant_ms(until)
    with coordinator_client() as client:
        if not yes:
            for line in _reasons(client.explain_window(application, until_ms)):
                error_console.print(f"  {line}", markup=False)
            typer.confirm(f"Approve windows of {application} up to {at(until_ms)}?", abort=True, err=True)
        info = client.approve_windows(application, until_ms, by or getpass.getuser(), reason)
    report(
        info.approvals, f"windows of {application} up to {at(until_ms)} may close; recorded", as_json=as_json
    )


def _reasons(explanation: Explanation) -> list[str]:
    missing = (
        f"{source}: {expected_ppm} ppm of the window expected to be missing, "
        f"at most {explanation.bound_ppm[source]} ppm"
        for source, expected_ppm in explanation.expected_missing_ppm.items()
    )
    breached = (
        f"{source}: {missing_ppm} ppm of the window were missing when it closed, more than declared"
        for source, missing_ppm in explanation.breached_ppm.items()
    )
    return [*explanation.reasons, *missing, *breached]
