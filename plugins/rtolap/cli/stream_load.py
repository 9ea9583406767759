"""`rtolap stream-load`: the endpoint that takes loads."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.cli.serving import service_settings
from rtolap.servers.limits import HttpLimits
from rtolap.stored.frontend.assembly import FrontendOptions
from rtolap.stored.frontend.process import run

app = typer.Typer(help="The front end.")


@app.callback()
def root() -> None:
    """Takes loads over HTTP, labelled and in transactions."""


@app.command()
def serve(
    loads_max: Annotated[int, typer.Option(min=1, help="Loads at a time; more are answered 429.")] = 64,
    loads_per_user_max: Annotated[
        int, typer.Option(min=0, help="Loads of one user at a time; 0: three quarters.")
    ] = 0,
    transactions_max: Annotated[
        int, typer.Option(min=1, help="Running transactions of one database; more are refused.")
    ] = 100,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of new partitions.")] = 3,
    lease_s: Annotated[float, typer.Option(min=1, help="A dead master is replaced after this.")] = 10.0,
    publish_timeout_s: Annotated[
        float, typer.Option(min=0, help="A load waits so long for its rows to be visible.")
    ] = 10.0,
    precommitted_timeout_s: Annotated[
        int, typer.Option(min=1, help="The second phase comes within this, or the load is aborted.")
    ] = 3600,
    label_keep_s: Annotated[
        int, typer.Option(min=0, help="Labels that nobody acknowledges; 0: kept for ever.")
    ] = 12 * 3600,
    label_count_max: Annotated[
        int, typer.Option(min=0, help="Labels kept in each database; 0: no limit.")
    ] = 0,
) -> None:
    """Run a front end until SIGTERM; start several, one of them is master."""
    settings = service_settings()
    options = FrontendOptions(
        lease_ms=round(lease_s * 1000),
        loads_max=loads_max,
        loads_per_user_max=loads_per_user_max or loads_max - loads_max // 4,
        transactions_max=transactions_max,
        precommitted_timeout_ms=precommitted_timeout_s * 1000,
        publish_timeout_s=publish_timeout_s,
        label_keep_s=label_keep_s or None,
        label_count_max=label_count_max or None,
        replication=replication,
        http=HttpLimits.from_settings(settings),
    )
    run(settings, options)
