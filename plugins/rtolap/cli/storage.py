"""`rtolap storage`: the process that keeps tablets of stored tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.base.stopping import stop_event, wait_awake
from rtolap.base.users import Users
from rtolap.cli.output import end_now
from rtolap.cli.serving import service_settings, switch_often
from rtolap.servers.limits import FlightLimits, HttpLimits
from rtolap.stored.node.load_door import LoadDoorOptions
from rtolap.stored.node.process import StorageService
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.stream_load.load_routes import RUNNING_MAX
from rtolap.stored.stream_load.ports import tls_of_loads

app = typer.Typer(no_args_is_help=True, help="Storage nodes.")
_DEFAULTS = StorageSettings()


@app.callback()
def root() -> None:
    """Storage nodes keep the rows of stored tables: they take loads, publish versions and answer scans."""


@app.command()
def serve(
    name: Annotated[str, typer.Option(help="Unique name of this node. The name belongs to its data folder.")],
    port: Annotated[int | None, typer.Option(help="Flight port; 0 takes a free one.")] = None,
    metrics_port: Annotated[int, typer.Option(help="Port of /metrics; 0 takes a free one.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of its tablets.")] = None,
    body_port: Annotated[
        int | None, typer.Option(help="Port where it takes bodies of loads; 0 takes a free one.")
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
    switch_often()
    with service:
        wait_awake(stopping)
    if not service.drained:
        end_now()


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
