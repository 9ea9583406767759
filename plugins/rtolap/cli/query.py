"""`rtolap query` runs the process behind both SQL endpoints, and shows its copies of history."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, console, end_now, print_json, print_table, warn
from rtolap.cli.serving import service_settings
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.model.quantities import instant_text, size_text
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import HISTORY_CACHE_OFF, HistoryCacheReport
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.http.server import CACHED_VERSIONS_MAX
from rtolap.query.memory_budget import BudgetLimits
from rtolap.query.mysql.server import MySqlLimits
from rtolap.query.run import QueryProcess
from rtolap.query.statement_service import QueryLimits

app = typer.Typer(no_args_is_help=True, help="The query service.")


@app.command()
def serve(
    memory_mb: Annotated[
        int, typer.Option(min=64, help="Memory of queries. They never use more than twice as much.")
    ] = 1024,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the embedded engine.")] = 2,
    history_memory_mb: Annotated[
        int, typer.Option(min=0, help="Memory for cached columns of history.")
    ] = MemoryBounds().file_bytes >> 20,
    queries_max: Annotated[
        int, typer.Option(min=1, help="Concurrent queries. Further ones are refused.")
    ] = 16,
    queries_per_user_max: Annotated[
        int, typer.Option(min=0, help="Concurrent queries of one user. 0: three quarters.")
    ] = 0,
    connection_memory_mb: Annotated[
        int, typer.Option(min=16, help="Memory of the service for one connection or request.")
    ] = BudgetLimits().connection_bytes >> 20,
    user_memory_mb: Annotated[
        int, typer.Option(min=16, help="Memory of the service for all connections of a user.")
    ] = BudgetLimits().user_bytes >> 20,
    users_memory_mb: Annotated[
        int, typer.Option(min=16, help="Memory of the service for all users together.")
    ] = BudgetLimits().total_bytes >> 20,
    connections_max: Annotated[
        int, typer.Option(min=1, help="MySQL connections. Further ones are refused.")
    ] = 200,
    connections_per_user_max: Annotated[
        int, typer.Option(min=0, help="MySQL connections of one user. 0: three quarters.")
    ] = 0,
    login_timeout_s: Annotated[float, typer.Option(min=0.1, help="Time for a whole MySQL login.")] = 10.0,
    idle_timeout_s: Annotated[
        float, typer.Option(min=1, help="Time after which a silent MySQL connection ends.")
    ] = 28_800.0,
    write_timeout_s: Annotated[
        float,
        typer.Option(min=0.1, help="Time within which a MySQL client has to read 64 KiB of its answer."),
    ] = 60.0,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM chain of both endpoints. [RTOLAP_QUERY_TLS_CERTIFICATE]")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key. [RTOLAP_QUERY_TLS_KEY]")] = None,
    require_tls: Annotated[
        bool, typer.Option("--require-tls", help="Refuse MySQL without TLS. [RTOLAP_QUERY_REQUIRE_TLS]")
    ] = False,
) -> None:
    """Answer SQL over the MySQL protocol and HTTP until SIGTERM."""
    settings = service_settings()
    settings = settings.model_copy(
        update={
            "query_tls_certificate": tls_certificate or settings.query_tls_certificate,
            "query_tls_key": tls_key or settings.query_tls_key,
            "query_require_tls": require_tls or settings.query_require_tls,
        }
    )
    with closing(open_cluster_store(settings)) as store:
        limits = QueryLimits(
            memory_bytes=memory_mb << 20,
            threads=threads,
            queries_max=queries_max,
            queries_per_user_max=queries_per_user_max or None,
            statement_ms_max=round(settings.query_statement_s_max * 1000),
            spill_folder=str(settings.query_spill_folder or settings.data_dir / "spill"),
            spill_free_bytes_min=settings.query_spill_free_bytes_min,
            budget=BudgetLimits(connection_memory_mb << 20, user_memory_mb << 20, users_memory_mb << 20),
        )
        mysql_limits = MySqlLimits(
            connections_max,
            login_timeout_s,
            idle_timeout_s,
            write_timeout_s=write_timeout_s,
            connections_per_user_max=connections_per_user_max or None,
        )
        bounds = MemoryBounds(
            file_bytes=history_memory_mb << 20, statement_bytes=settings.history_statement_bytes_max
        )
        QueryProcess(settings, store, limits, mysql_limits, bounds).run()
    end_now()


@app.command()
def cache(
    versions_max: Annotated[
        int,
        typer.Option(
            "--versions", min=0, max=CACHED_VERSIONS_MAX, help="Number of versions to show, the newest first."
        ),
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """Show the history that the running query service has on its disk."""
    settings = Settings()
    with QueryClient(settings.query_url(), token=settings.token(), ca_file=settings.query_ca) as client:
        found = client.history_cache(versions_max)
    if as_json:
        print_json(found)
        return
    if found.state == HISTORY_CACHE_OFF.state:
        console.print("no copies of history are kept: RTOLAP_HISTORY_CACHE_DIR is not set")
        return
    print_table(
        ("cube", "segment", "version", "state", "files", "of", "bytes", "of bytes"),
        [
            (
                *(version.cube, version.segment, version.version, version.state),
                *(version.cached_files, version.files, version.cached_bytes, version.bytes),
            )
            for version in found.versions
        ],
    )
    if sys.stdout.isatty():
        console.print(_summary(found), highlight=True)
    if found.found:
        warn(found.found)


def _summary(found: HistoryCacheReport) -> str:
    complete = "all of history"
    if found.complete_from_ms is not None:
        since = instant_text(found.complete_from_ms)
        complete = f"all that ends after {since}"
    cached = f"{size_text(found.cached_bytes)} of {size_text(found.bytes_max)}"
    size = f"{found.cached_files} files, {cached} in {found.folder}"
    return f"{found.state}: {size}; {complete} is on the disk"
