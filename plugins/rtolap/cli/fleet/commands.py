"""`rtolap fleet`: the commands, mounted."""

from __future__ import annotations

import typer

from rtolap.cli.fleet.snapshot import snapshot

app = typer.Typer(no_args_is_help=True, help="Care of the Kafka brokers: what is where, and moving it.")
app.command()(snapshot)


@app.callback()
def fleet() -> None:
    """Care of the Kafka brokers: what is where, and moving it."""
