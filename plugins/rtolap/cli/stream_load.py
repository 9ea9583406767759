"""`rtolap stream-load`: the endpoint that takes loads."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.cycle_collection import keep_blocks
from rtolap.cli.serving import service_settings
from rtolap.servers.limits import HttpLimits
from rtolap.stored.frontend.assembly import FrontendOptions
from rtolap.stored.frontend.process import run

app = typer.Typer(help="The front end.")


@app.command()
def serve(
    loads_max: Annotated[
        int, typer.Option(min=1, help="Concurrent loads. Further ones are answered with 429.")
    ] = 64,
    loads_per_user_max: Annotated[
        int, typer.Option(min=0, help="Concurrent loads of one user. 0: three quarters.")
    ] = 0,
    transactions_max: Annotated[
        int, typer.Option(min=1, help="Running transactions of one database. Further ones are refused.")
    ] = 100,
    replication: Annotated[int, typer.Option(min=1, help="Replicas of new partitions.")] = 3,
    lease_s: Annotated[
        float, typer.Option(min=1, help="Seconds after which a dead master is replaced.")
    ] = 10.0,
    publish_timeout_s: Annotated[
        float, typer.Option(min=0, help="Seconds that a load waits until its rows are visible.")
    ] = 10.0,
    precommitted_timeout_s: Annotated[
        int,
        typer.Option(
            min=1, help="Seconds within which the second phase has to come; otherwise the load is aborted."
        ),
    ] = 3600,
    label_keep_s: Annotated[
        int,
        typer.Option(
            min=0, help="Seconds for which labels without an acknowledgement are stored. 0: for ever."
        ),
    ] = 12 * 3600,
    label_count_max: Annotated[
        int, typer.Option(min=0, help="Labels stored in each database. 0: no limit.")
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
        node_lost_after_s=settings.storage_node_lost_after_s,
        redirect=settings.stream_load_redirect,
        http=HttpLimits.from_settings(settings),
    )
    keep_blocks()
    run(settings, options)
