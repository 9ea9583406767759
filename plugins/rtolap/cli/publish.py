"""`rtolap publish`: history as Iceberg tables.

Exit codes: 0 done; 1 an error, reported on stderr; `status` ends with 3 when a publisher fails, `verify` when
the table is not what the records say.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rtolap.base.clock import SystemClock
from rtolap.base.complete import complete
from rtolap.base.errors import DefinitionError
from rtolap.base.optional import import_optional
from rtolap.base.settings import Settings
from rtolap.base.stopping import stop_event
from rtolap.cli.output import JsonOption, print_json, print_table, report, success, warn
from rtolap.cli.progress import progress_of
from rtolap.cli.serving import ServedMetricsPortOption, service_settings
from rtolap.cli.watching import repeatable
from rtolap.metadata.cluster_store import open_cluster_store, show_refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import Publications
from rtolap.model.quantities import instant_text
from rtolap.model.yaml_files import read_definitions
from rtolap.object_store.store import open_store
from rtolap.publish.operations import (
    PublicationState,
    create_publication,
    publication_state,
    release_holds,
)
from rtolap.servers.metrics_server import MetricsServer

EXIT_UNSOUND = 3
_COLUMNS = ("publication", "state", "cube", "cuboid", "table", "lag", "segments", "snapshots", "last look")

NameArgument = Annotated[str, typer.Argument(help="Name of the publication.")]

app = typer.Typer(no_args_is_help=True, help="Publications: history as Iceberg tables.")


@app.command()
def create(
    path: Annotated[Path, typer.Argument(help="Definition file, or a folder of them.")],
    as_json: JsonOption = False,
) -> None:
    """Create publications. An existing publication uses changed settings from its next look on."""
    publications = read_definitions(path).publications
    if not publications:
        raise DefinitionError(f"no publications in {path}", expected="documents of kind: publication")
    with _metadata() as metadata:
        for publication in publications.values():
            create_publication(metadata, publication)
    messages = (f"publication {name}: cube {it.cube} as {it.table}" for name, it in publications.items())
    report(list(publications), *messages, as_json=as_json)


@app.command("list")
@repeatable
def list_(as_json: JsonOption = False) -> None:
    """List all publications, with the number of segments that each lags behind."""
    with _metadata() as metadata:
        names = Publications(metadata.store).declarations()
        states = [publication_state(metadata, name) for name in names]
    _show(states, as_json=as_json)


@app.command()
@repeatable
def status(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show how far a publication is, and why its last look failed."""
    with _metadata() as metadata:
        state = publication_state(metadata, name)
    _show([state], as_json=as_json)
    if state.status.error is not None:
        raise typer.Exit(EXIT_UNSOUND)


@app.command()
def serve(
    name: NameArgument,
    metrics_port: ServedMetricsPortOption = 0,
) -> None:
    """Publish in this process, until it is stopped or the publication is dropped.

    Of several processes of one publication, one works. The others stand by and take over.
    """
    settings = service_settings()
    process = _library("process")
    metrics = _library("metrics").PublishMetrics()
    stopping = stop_event()
    store = open_cluster_store(settings)
    show_refused(metrics.registry, store)
    metrics_server = MetricsServer.of_settings(metrics.registry, settings, metrics_port)
    try:
        Publications(store).declaration(name)
        process.PublicationProcess(
            name,
            store,
            open_store(settings.object_store),
            SystemClock(),
            metrics,
            identity=f"{socket.gethostname()}/{os.getpid()}",
            stopping=stopping,
        ).run()
    finally:
        metrics_server.close()
        store.close()


@app.command()
def segments(
    name: NameArgument,
    snapshot: Annotated[
        int | None, typer.Option(min=0, help="Id of a snapshot. Default: the newest.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the segments of a snapshot with their versions."""
    with _metadata() as metadata:
        publication = Publications(metadata.store).declaration(name).publication
        store = open_store(Settings().object_store)
        found = _library("verify").segments_of_snapshot(metadata, store, publication, snapshot)
    print_table(("segment", "version", "files", "rows"), found, as_json=as_json)


@app.command()
def verify(name: NameArgument, as_json: JsonOption = False) -> None:
    """Compare the table with the records: each file of each READY version once, and no other."""
    with _metadata() as metadata:
        publication = Publications(metadata.store).declaration(name).publication
        store = open_store(Settings().object_store)
        with progress_of("comparing files"):
            found = _library("verify").verify_publication(metadata, store, publication)
    if as_json:
        print_json(found._asdict())
    else:
        success(f"{found.segments} segments, {found.files} files, {found.rows} rows in the newest snapshot")
        for what, uris in (("missing", found.missing), ("surplus", found.surplus), ("gone", found.gone)):
            for uri in uris:
                warn(f"{what}: {uri}")
    if not found.sound:
        raise typer.Exit(EXIT_UNSOUND)


@app.command()
def release(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the purge delete files that snapshots name, for a publisher that is gone for long.

    The publisher's next look makes a snapshot of what is there, and lets all others expire.
    """
    if not yes:
        typer.confirm(f"Readers of the table of {name} may find files missing. Go on?", abort=True)
    with _metadata() as metadata:
        release_holds(metadata, name)
    message = f"the snapshots of publication {name} hold nothing any more"
    report({"released": name}, message, as_json=as_json)


@app.command()
def reset(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop the table. The publisher's next look makes it anew, with the columns that the cube has now."""
    if not yes:
        typer.confirm(f"Drop the table of publication {name} in its catalog?", abort=True)
    with _metadata() as metadata:
        publication = Publications(metadata.store).declaration(name).publication
        _library("removal").drop_table(publication)
    report({"reset": name}, f"table {publication.table} is dropped", as_json=as_json)


@app.command()
def drop(
    name: NameArgument,
    keep_table: Annotated[
        bool,
        typer.Option("--keep-table", help="Leave the table in its catalog; its files are deleted in time."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a publication and its table. History stays."""
    if not yes:
        typer.confirm(f"Drop publication {name}{'' if keep_table else ' and its table'}?", abort=True)
    with _metadata() as metadata:
        _library("removal").drop_publication(Publications(metadata.store), name, keep_table=keep_table)
    report({"dropped": name}, f"publication {name} dropped", as_json=as_json)


@contextmanager
def _metadata() -> Iterator[ClusterMetadata]:
    with closing(open_cluster_store(Settings())) as store:
        yield ClusterMetadata(store, SystemClock())


def _library(module: str) -> Any:
    """Return a module that needs pyiceberg, which other commands do without."""
    return import_optional(
        f"rtolap.publish.{module}",
        needs="publications need a library",
        package="pyiceberg",
        extra="iceberg",
    )


def _show(states: list[PublicationState], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(state) for state in states])
        return
    rows = []
    for state in states:
        looked_ms = state.status.looked_ms
        rows.append(
            (
                state.publication.name,
                state.state,
                state.publication.cube,
                state.cuboid,
                state.publication.table,
                state.lag_segments,
                state.ready_segments,
                state.status.snapshots,
                "never" if looked_ms is None else instant_text(looked_ms),
            )
        )
    print_table(_COLUMNS, rows)
    for state in states:
        if state.status.error is not None:
            warn(
                f"{state.publication.name} fails for the {state.status.failures}. time: {state.status.error}"
            )
        if state.holds.released:
            warn(f"{state.publication.name}: its snapshots were given up, their files may be gone")


def _document(state: PublicationState) -> dict[str, object]:
    return {
        "name": state.publication.name,
        "state": state.state,
        "cuboid": state.cuboid,
        "lag_segments": state.lag_segments,
        "ready_segments": state.ready_segments,
        "definition": complete(state.publication),
        "status": msgspec.to_builtins(state.status),
        "released": state.holds.released,
    }
