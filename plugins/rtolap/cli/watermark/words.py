"""Instants and spans as the commands about watermarks print them, and the arguments that they share."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.errors import RtolapError
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.local.running_stack import adopt_running_stack
from rtolap.model.durations import format_duration
from rtolap.model.quantities import instant_text

_COMPLETE_S = 1.0


def at(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else instant_text(instant_ms)


def span(duration_ms: int | None) -> str | None:
    """Format a duration in seconds. A time ahead of the clock is 0s."""
    return None if duration_ms is None else format_duration(max(duration_ms, 0) // 1000 * 1000)


def complete_application(incomplete: str) -> list[str]:
    """Complete the name of an application for the shell, which has no room for errors.

    Nothing is offered unless a coordinator answers at once.
    """
    adopt_running_stack()
    try:
        with coordinator_client(timeout_s=_COMPLETE_S, retry_s=0.0) as client:
            return [name for name in client.applications() if name.startswith(incomplete)]
    except RtolapError:
        return []


def complete_level(context: typer.Context, incomplete: str) -> list[str]:
    """Return the levels of the application that is named before it on the command line."""
    adopt_running_stack()
    try:
        with coordinator_client(timeout_s=_COMPLETE_S, retry_s=0.0) as client:
            marks = client.application_watermarks(context.params["application"])
            return [level for level in marks.levels if level.startswith(incomplete)]
    except (RtolapError, KeyError):
        return []


Name = Annotated[str, typer.Argument(help="Name of the application.", autocompletion=complete_application)]
