"""`rtolap query serve`: the process behind both SQL doors."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.query.run import QueryProcess
from rtolap.query.service import Limits

app = typer.Typer(no_args_is_help=True, help="The query service.")


@app.callback()
def root() -> None:
    """The query service answers SQL over history and receivers."""


@app.command()
def serve(
    memory_mb: Annotated[int, typer.Option(min=64, help="Memory that all queries together may use.")] = 1024,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the embedded engine.")] = 2,
    queries_max: Annotated[int, typer.Option(min=1, help="Queries at a time; more are refused.")] = 16,
) -> None:
    """Answer SQL over the MySQL protocol and HTTP until SIGTERM."""
    settings = Settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    store = ZooKeeperStore(
        settings.zookeeper, root=settings.zookeeper_root, session_timeout_s=settings.session_timeout_s
    )
    try:
        limits = Limits(memory_bytes=memory_mb << 20, threads=threads, queries_max=queries_max)
        QueryProcess(settings, store, limits).run()
    finally:
        store.close()
