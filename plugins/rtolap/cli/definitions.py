"""`rtolap validate | create | describe | drop`: definitions, from files to the coordinator and back."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rtolap.base.decoding import convert
from rtolap.base.errors import NotFound
from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, success, warn
from rtolap.cli.tables import drop as drop_table
from rtolap.cli.tables import show as show_table
from rtolap.cli.tables import tables_client
from rtolap.model.cube import Cube, Revision, Schema, cuboids
from rtolap.model.durations import format_duration
from rtolap.model.instants import utc_text
from rtolap.model.stored.table import StoredTable
from rtolap.model.table import Lookup, Table
from rtolap.model.validation.files import file_problems
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeStatus
from rtolap.protocols.definitions import Takers, create_all, wants_coordinator, wants_endpoints
from rtolap.protocols.query.messages import refused_text
from rtolap.stored.loader.operations import job_access

app = typer.Typer(no_args_is_help=True, help="Tables, cubes, lookups and stored tables.")

PathsArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="YAML files, or folders of them. Default: RTOLAP_INCLUDE_DIR."),
]
NameArgument = Annotated[str, typer.Argument(help="Name of a table, cube or lookup.")]


@app.command()
def validate(
    paths: PathsArgument = None,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="Do not look for password files, because the processes run on other hosts."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check definitions and the files that they name. Each problem is shown with its file and line."""
    sources = paths or [Settings().include_dir]
    definitions = read_definitions(*sources) if elsewhere else read_definitions(*sources, also=file_problems)
    rows = [("table", name, f"topic {table.topic}") for name, table in definitions.tables.items()]
    rows += [("lookup", name, lookup.source) for name, lookup in definitions.lookups.items()]
    rows += [("cube", name, _cube_summary(cube)) for name, cube in definitions.cubes.items()]
    rows += [
        ("application", name, f"{len(application.levels)} levels, {len(application.edges)} edges")
        for name, application in definitions.applications.items()
    ]
    rows += [
        ("stored_table", name, _stored_summary(table)) for name, table in definitions.stored_tables.items()
    ]
    rows += [
        ("loader", name, f"topic {loader.topic} into {loader.database}.{loader.table}")
        for name, loader in definitions.loaders.items()
    ]
    rows += [
        ("subscription", name, f"{subscription.followed} to {subscription.listener.kind}")
        for name, subscription in definitions.subscriptions.items()
    ]
    rows += [
        ("kafka_fleet", name, f"{len(fleet.clusters)} clusters, {len(fleet.topics)} owners of topics")
        for name, fleet in definitions.fleets.items()
    ]
    rows += [
        ("publication", name, f"cube {publication.cube} as {publication.table}")
        for name, publication in definitions.publications.items()
    ]
    print_table(("kind", "name", "summary"), rows, as_json=as_json)
    if not as_json:
        success(f"{len(rows)} definitions in {', '.join(map(str, sources))} are sound")


@app.command()
def create(
    paths: PathsArgument = None,
    enable: Annotated[bool, typer.Option("--enable", help="Start consuming at once.")] = False,
    change: Annotated[
        bool, typer.Option("--change", help="Change existing applications to the definitions in the files.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create what the files define, each after what it needs.

    Repeating it changes nothing, and a failure leaves nothing behind.
    """
    definitions = read_definitions(*(paths or [Settings().include_dir]))
    if paths and definitions.subscriptions:
        warn(f"not created here: subscription {', '.join(definitions.subscriptions)}; use rtolap sep create")
    if paths and definitions.publications:
        warn(
            f"not created here: publication {', '.join(definitions.publications)}; use rtolap publish create"
        )
    with ExitStack() as opened:
        takers = Takers(
            opened.enter_context(coordinator_client()) if wants_coordinator(definitions) else None,
            opened.enter_context(tables_client()) if wants_endpoints(definitions) else None,
            opened.enter_context(job_access(Settings())).declare_revocably if definitions.loaders else None,
        )
        created = create_all(takers, definitions, enable=enable, change=change)
    report(created, *(f"{kind} {name}" for kind, name in created), as_json=as_json)


@app.command()
def describe(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a definition of the cluster. A stored table is named DATABASE.TABLE."""
    if "." in name:
        show_table(name, as_json)
        return
    with coordinator_client() as client:
        kind, definition = _find(client, name)
        table = client.table(str(definition["table"])) if kind == "cube" else None
        status = client.cube(name) if kind == "cube" else None
    if as_json:
        standing = {} if status is None else {"status": _standing(status)}
        print_json({"kind": kind, **definition, **standing})
        return
    if table is not None:
        schema = Schema(convert(table, Table), convert(definition, Cube))
        _describe_cube(schema)
        if status is not None:
            _describe_standing(status)
        return
    if kind == "application":
        print_json({"kind": kind, **definition})  # as a tree: rtolap watermark topology
        return
    described = convert(definition, Table) if kind == "table" else convert(definition, Lookup)
    source = f"topic {described.topic}" if isinstance(described, Table) else described.source
    console.print(f"[bold]{kind} {escape(name)}[/bold]  {escape(source)}", highlight=True)
    if isinstance(described, Table):
        time = described.time
        console.print(
            f"event time {escape(time.column)}, {escape(time.format)}, {escape(time.zone)}", highlight=True
        )
    print_table(
        ("column", "type", "path"), [(column.name, column.type, column.path) for column in described.columns]
    )


@app.command()
def drop(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    disable: Annotated[bool, typer.Option("--disable", help="Stop a cube's receivers first.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop a cube, an application, a lookup, an unused table, or a stored table DATABASE.TABLE."""
    if "." in name:
        drop_table(name, yes, as_json)
        return
    with coordinator_client() as client:
        kind, _ = _find(client, name)
        if not yes and not typer.confirm(f"Drop {kind} {name}?"):
            raise typer.Exit(1)
        if kind == "cube" and disable:
            client.disable_cube(name)
        {
            "table": client.drop_table,
            "lookup": client.drop_lookup,
            "cube": client.drop_cube,
            "application": client.drop_application,
        }[kind](name)
    report({"dropped": name, "kind": kind}, f"{kind} {name} dropped", as_json=as_json)


def _find(client: CoordinatorClient, name: str) -> tuple[str, dict[str, Any]]:
    """Find the definition of a name: cubes before lookups before tables, as SQL sees them; applications
    last."""
    for cube in client.cubes():
        if cube.name == name:
            return "cube", cube.definition
    if name in client.lookups():
        return "lookup", client.lookup(name)
    tables = client.tables()
    if name in tables:
        return "table", client.table(name)
    if name in client.applications():
        return "application", client.application(name).definition
    raise NotFound(f"no cube, lookup, table or application is named {name!r}")


def _stored_summary(table: StoredTable) -> str:
    policy = table.partitions
    by = "one partition" if policy is None else f"partitions by {policy.unit} of {policy.column}"
    return f"{table.model} model, {len(table.columns)} columns, {by}, buckets: {table.buckets.count}"


def _cube_summary(cube: Cube) -> str:
    window = format_duration(cube.segment.window_ms)
    return (
        f"{len(cube.all_dimensions)} dimensions, {len(cube.measures)} measures, "
        f"{len(cuboids(cube))} cuboids, segments of {window}"
    )


def _standing(status: CubeStatus) -> dict[str, object]:
    return status.model_dump(
        mode="json",
        include={"enabled", "paused", "problem", "topic_id", "revisions", "ended"}
        | {"refused", "refused_example"},
    )


def _describe_standing(status: CubeStatus) -> None:
    """Name the cube's later revisions, and warn of what its answers do not hold, and why."""
    if status.revisions:
        console.print(f"later events are in {', '.join(status.revisions)}")
    if status.ended:
        console.print(f"{status.name} accepts no event any more: it is read by nobody")
    elif not status.enabled:
        begun = status.assignment_epoch > 0
        warn(f"{status.name} is disabled" if begun else f"{status.name} was never enabled: it has no events")
    elif status.paused:
        warn(f"{status.name} is paused")
    if status.problem:
        warn(status.problem)
    if refused := refused_text(status.refused, status.refused_example):
        warn(refused)


def _describe_filling(revision: Revision) -> None:
    from_ms, since_ms = revision.fills_from_ms, revision.since_ms
    if from_ms is not None and since_ms is not None and from_ms < since_ms:
        source = "the topic" if revision.filled_by == "topic" else "batches"
        console.print(f"it is filled from {utc_text(from_ms)} on, by {source}")


def _describe_cube(schema: Schema) -> None:
    cube = schema.cube
    segment, retention = cube.segment, cube.retention
    after = "" if retention.after_ms is None else f" after {format_duration(retention.after_ms)}"
    console.print(f"[bold]cube {escape(cube.name)}[/bold]  of table {escape(cube.table)}", highlight=True)
    window, lateness = format_duration(segment.window_ms), format_duration(segment.allowed_lateness_ms)
    console.print(
        f"segments of {window}, closed {lateness} behind the low watermark; "
        f"{retention.policy}{after}; late events: {cube.late.policy}"
        f"{'; what the log has lost is dropped' if cube.truncation == 'drop' else ''}",
        highlight=True,
    )
    if cube.revision is not None:
        since_ms, until_ms = cube.revision.bounds_ms
        since = "" if since_ms is None else f" from {utc_text(since_ms)} on"
        until = "" if until_ms is None else f" until {utc_text(until_ms)}"
        of = f"revision {cube.revision.number} of {cube.revision.of}"
        console.print(f"{of}: its events{since}{until}")
        _describe_filling(cube.revision)
    print_table(
        ("dimension", "type"), [(name, str(schema.dimension_type(name))) for name in cube.all_dimensions]
    )
    print_table(
        ("measure", "columns"),
        [
            (
                str(measure),
                ", ".join(f"{partial.name} {partial.type}" for partial in schema.partials_of(measure)),
            )
            for measure in cube.measures
        ],
    )
    print_table(("cuboid",), [(cuboid.name,) for cuboid in cuboids(cube)])
