"""`rtolap spark` runs the Spark service that makes large reads of history."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.cli.serving import service_settings
from rtolap.query.spark.service import service_token
from rtolap.stack.servers.spark import connect_program

app = typer.Typer(no_args_is_help=True, help="The Spark service of large reads of history.")


@app.command()
def serve(
    memory_mb: Annotated[
        int, typer.Option(min=256, help="Memory of the driver, which is all there is on a local master.")
    ] = 1024,
    master: Annotated[str, typer.Option(help="Master of Spark. Default: RTOLAP_SPARK_MASTER.")] = "",
) -> None:
    """Serve Spark Connect on the loopback address until SIGTERM, to those who have the token."""
    settings = service_settings()
    program = connect_program(
        settings.data_dir / "spark",
        master=master or settings.spark_master,
        port=settings.history_spark_port,
        token=service_token(settings),
        memory_mb=memory_mb,
        spark_host=settings.spark_host,
    )
    try:
        os.execve(program.argv[0], program.argv, program.environment)  # signals reach Spark itself
    except OSError as error:
        raise DefinitionError(
            "the Spark service cannot be started",
            expected="the package pyspark with its folder bin",
            found=str(error),
            action="pip install 'rtolap[spark]'",
        ) from error
