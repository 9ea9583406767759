"""`rtolap storage`: the process that keeps tablets of stored tables, and moves of replicas between nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.addresses import PORT_MAX
from rtolap.base.cycle_collection import keep_blocks
from rtolap.base.settings import Settings
from rtolap.base.stopping import stop_event, wait_awake
from rtolap.base.users import Users
from rtolap.cli.output import JsonOption, console, end_now, print_json, print_table, report, success
from rtolap.cli.serving import FlightPortOption, ServedMetricsPortOption, service_settings, switch_often
from rtolap.cli.tables import tables_client
from rtolap.cli.watching import repeatable
from rtolap.protocols.storage.messages import MoveInfo, MovesInfo
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.servers.limits import FlightLimits, HttpLimits
from rtolap.stored.node.load_door import LoadDoorOptions
from rtolap.stored.node.process import StorageService
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.stream_load.load_routes import RUNNING_MAX
from rtolap.stored.stream_load.ports import tls_of_loads

app = typer.Typer(no_args_is_help=True, help="Storage nodes.")
_DEFAULTS = StorageSettings()


@app.command()
def serve(
    name: Annotated[str, typer.Option(help="Unique name of this node. The name belongs to its data folder.")],
    port: FlightPortOption = None,
    metrics_port: ServedMetricsPortOption = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of its tablets.")] = None,
    body_port: Annotated[
        int | None,
        typer.Option(min=0, max=PORT_MAX, help="Port where it takes bodies of loads; 0 takes a free one."),
    ] = None,
    bodies_max: Annotated[
        int, typer.Option(min=1, help="Concurrent bodies of loads. Further ones are answered with 429.")
    ] = RUNNING_MAX,
    load_memory_bytes_max: Annotated[
        int,
        typer.Option(min=1 << 20, help="Bytes of rows of all loads in memory before they are written out."),
    ] = _DEFAULTS.load_memory_bytes_max,
    loads_max: Annotated[
        int, typer.Option(min=1, help="Concurrent streams of rows. A further one has to try again later.")
    ] = _DEFAULTS.loads_max,
    disk_free_bytes_min: Annotated[
        int, typer.Option(min=0, help="Free bytes of the disk below which no load begins.")
    ] = _DEFAULTS.disk_free_bytes_min,
    heartbeat_every_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds between heartbeats to the front ends.")
    ] = _DEFAULTS.heartbeat_every_s,
    drain_s: Annotated[
        float, typer.Option(min=0.0, help="Seconds within which open streams have to end after SIGTERM.")
    ] = _DEFAULTS.drain_s,
) -> None:
    """Run a storage node until SIGTERM."""
    settings = service_settings()
    stopping = stop_event()
    service = StorageService(
        name=name,
        data=data_dir or settings.data_dir / "storage" / name,
        host=settings.host,
        announced_host=settings.reached_at(),
        port=settings.storage_port if port is None else port,
        metrics_port=metrics_port,
        token=settings.token(),
        endpoints=settings.stream_load_urls(),
        endpoints_ca=settings.stream_load_ca,
        settings=StorageSettings(
            load_memory_bytes_max=load_memory_bytes_max,
            loads_max=loads_max,
            disk_free_bytes_min=disk_free_bytes_min,
            heartbeat_every_s=heartbeat_every_s,
            drain_s=drain_s,
        ),
        http_limits=HttpLimits.from_settings(settings),
        flight_limits=FlightLimits.from_settings(settings),
        loads=_loads(
            settings, name, settings.storage_body_port if body_port is None else body_port, bodies_max
        ),
    )
    keep_blocks()
    switch_often()
    with service:
        wait_awake(stopping)
    if not service.drained:
        end_now()


_LOOK_S = 1.0  # how often a command that waits looks

WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all of it is done.")]


@app.command()
@repeatable
def moves(as_json: JsonOption = False) -> None:
    """Show the nodes with what they have, and the replicas that move."""
    with tables_client() as client:
        _show(client.storage_moves(), as_json=as_json)


@app.command()
def drain(
    node: Annotated[str, typer.Argument(help="Name of the storage node.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let the node take replicas again.")] = False,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Move all replicas off a node, which may be stopped then."""
    with tables_client() as client:
        client.drain(node, undo=undo)
        if undo or not wait:
            _show(client.storage_moves(), as_json=as_json)
            return
        left = -1
        while left != 0:
            if left > 0:
                time.sleep(_LOOK_S)
            found = client.storage_moves()
            now_left = next(each.replicas for each in found.nodes if each.name == node)
            if now_left != left and not as_json:
                console.print(f"{now_left} replicas are left on {node}", highlight=True)
            left = now_left
        report(found, f"no replica is left on {node}: it may be stopped", as_json=as_json)


@app.command()
def rebalance(
    plan: Annotated[bool, typer.Option("--plan", help="Only show the moves.")] = False,
    wait: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Move replicas until the bytes of no two nodes differ by more than a tenth of their mean, or than the
    largest tablet."""
    done: list[MoveInfo] = []
    with tables_client() as client:
        while found := client.rebalance(plan_only=plan):
            done += found
            if not as_json:
                print_table(_MOVE, [_row(move) for move in found], as_json=False)
            if plan or not wait:
                break
            _wait_for_moves(client)
    if as_json:
        print_json(done)
    elif not done:
        success("the bytes of storage nodes are even")


_MOVE = ("tablet", "from", "to", "reason", "state", "bytes")


def _row(move: MoveInfo) -> tuple[str, str, str, str, str, int]:
    tablet = f"{move.db}.{move.table}/{move.partition}/{move.bucket}"
    return (tablet, move.old_node or "-", move.node, move.reason, move.state, move.bytes)


def _show(found: MovesInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    nodes = [(each.name, each.state, each.replicas, each.bytes) for each in found.nodes]
    print_table(("node", "state", "replicas", "bytes"), nodes, as_json=False)
    if found.moves:
        print_table(_MOVE, [_row(move) for move in found.moves], as_json=False)


def _wait_for_moves(client: StoredTablesClient) -> None:
    while client.storage_moves().moves:
        time.sleep(_LOOK_S)


def _loads(settings: Settings, name: str, port: int | None, bodies_max: int) -> LoadDoorOptions | None:
    """Return how the node takes bodies of loads; None where it takes none. Raises DefinitionError."""
    if port is None:
        return None
    return LoadDoorOptions(
        port=port,
        announced_host=settings.reached_at(),
        users=Users.load(settings.users_file),
        error_folder=settings.data_dir / "stream-load" / name / "errors",
        tls=tls_of_loads(settings),
        loads_max=bodies_max,
        loads_per_user_max=bodies_max - bodies_max // 4,
    )
