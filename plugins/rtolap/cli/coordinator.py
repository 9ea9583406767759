"""`rtolap coordinator`: run one, and show who leads, and who owns which application."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Annotated

import typer

from rtolap.base.errors import Unavailable
from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client, warn_of_replica_sets
from rtolap.cli.kafka_access import kafka_connections
from rtolap.cli.output import JsonOption, print_json, print_table
from rtolap.cli.serving import service_settings
from rtolap.cli.watching import repeatable
from rtolap.coordinator.server import run
from rtolap.metadata.cluster_store import open_zookeeper
from rtolap.metadata.protection import protect_cluster

app = typer.Typer(no_args_is_help=True, help="The coordinator: cubes, segments, builds, watermarks.")


@app.command()
def serve() -> None:
    """Run a coordinator until SIGTERM. Of several coordinators, one leads; all share the applications."""
    settings = service_settings()
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    run(settings, kafka_connections(settings, "rtolap-coordinator").admin)


@app.command()
def protect(
    apply: Annotated[
        bool, typer.Option("--apply", help="Close and sign them. Without it, only show them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restrict and sign the ZooKeeper nodes of a cluster that was created without protection.

    The present content is trusted by that, so stop all services first, and check what is shown.
    """
    settings = Settings()
    with closing(open_zookeeper(settings)) as store:
        done = protect_cluster(store, settings.token(), apply=apply)
    rows = [(node.path or "/", node.open, node.unsigned) for node in done]
    if as_json:
        names = ("node", "open", "unsigned")
        print_json({"applied": apply, "nodes": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(("node", "open", "unsigned"), rows)
    _print_result(len(done), apply)


def _print_result(nodes: int, applied: bool) -> None:
    if not nodes:
        typer.echo("every node is closed to others, and every record is signed")
    elif applied:
        typer.echo(f"{nodes} nodes are closed and signed: start the services")
    else:
        typer.echo(f"{nodes} nodes: repeat the command with --apply to close and sign them")


@app.command()
@repeatable
def status(as_json: JsonOption = False) -> None:
    """Show the coordinators, who leads, the content of the cluster, and the owner of every application."""
    with coordinator_client() as client:
        rows: list[tuple[object, ...]] = []
        for url in Settings().coordinator_urls():
            try:
                health = client.health(url)
                rows.append((url, health.role, health.leader_url, health.zookeeper, health.applications))
            except Unavailable:
                rows.append((url, "unreachable", None, None, None))
        if as_json:
            print_json(client.cluster())
            return
        print_table(("coordinator", "role", "leader", "zookeeper", "applications"), rows)
        cluster = client.cluster()
    warn_of_replica_sets(cluster.replica_sets)
    print_table(
        ("cube", "enabled", "paused", "low_watermark_ms", "segments", "problem"),
        [
            (
                cube.name,
                cube.enabled,
                cube.paused,
                cube.low_watermark_ms,
                ", ".join(f"{count} {state}" for state, count in cube.segments.items() if count),
                cube.problem,
            )
            for cube in cluster.cubes
        ],
    )
    print_table(
        ("application", "owner"), [(one.application, one.owner or "moves") for one in cluster.applications]
    )
