"""`rtolap receiver` runs the process that consumes, answers and uploads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.cycle_collection import CycleCollection, share_arenas
from rtolap.base.errors import RtolapError
from rtolap.base.stopping import stop_event
from rtolap.cli.kafka_access import kafka_connections, open_consumer
from rtolap.cli.output import end_now
from rtolap.cli.serving import FlightPortOption, ServedMetricsPortOption, service_settings, switch_often
from rtolap.cubes.receiver.assembly import CubeAssembly
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.schema_registry import SchemaRegistries
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.object_store.store import open_store
from rtolap.servers.limits import FlightLimits, HttpLimits

app = typer.Typer(no_args_is_help=True, help="Receivers.")
_DEFAULTS = ReceiverSettings()


@app.command()
def serve(
    receiver_id: Annotated[str, typer.Option("--id", help="Unique name of this receiver.")],
    replica_set: Annotated[str, typer.Option(help="Replica set that it belongs to.")],
    port: FlightPortOption = None,
    metrics_port: ServedMetricsPortOption = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of its fragments and checkpoints.")] = None,
    flush_rows: Annotated[
        int, typer.Option(min=1, help="Aggregated rows in memory from which they are written out.")
    ] = _DEFAULTS.flush_rows,
    flush_bytes: Annotated[
        int, typer.Option(min=1 << 20, help="Bytes in memory from which they are written out.")
    ] = _DEFAULTS.flush_bytes,
    checkpoint_interval_s: Annotated[
        float,
        typer.Option(
            min=0.1, help="Interval at which they are written out at the latest. It bounds a replay."
        ),
    ] = _DEFAULTS.checkpoint_interval_s,
    fragments_max: Annotated[
        int, typer.Option(min=1, help="Fragments of a segment before they are merged.")
    ] = _DEFAULTS.fragments_max,
    merge_bytes_max: Annotated[
        int, typer.Option(min=1 << 20, help="Bytes that are merged at once.")
    ] = _DEFAULTS.merge_bytes_max,
    unbuilt_segments_max: Annotated[
        int, typer.Option(min=1, help="Closed segments without history at which the consumer pauses.")
    ] = _DEFAULTS.unbuilt_segments_max,
    disk_free_bytes_min: Annotated[
        int, typer.Option(min=0, help="Free bytes of the disk below which the consumer pauses.")
    ] = _DEFAULTS.disk_free_bytes_min,
    idle_after_s: Annotated[
        float,
        typer.Option(min=0.1, help="Silence after which a partition no longer holds the watermark back."),
    ] = _DEFAULTS.idle_after_s,
) -> None:
    """Run a receiver until SIGTERM; it then writes a checkpoint and ends."""
    share_arenas()
    settings = service_settings()
    clock = SystemClock()
    stopping = stop_event()
    connections = kafka_connections(settings, f"rtolap-{receiver_id}")
    store = open_cluster_store(settings)
    files = open_store(settings.object_store)
    cubes = CubeAssembly(
        receiver_id=receiver_id,
        replica_set=replica_set,
        token=settings.token(),
        data_dir=data_dir or settings.data_dir / "receivers" / receiver_id,
        metadata=ClusterMetadata(store, clock, files),
        store=files,
        open_consumer=lambda table: open_consumer(connections, table, f"rtolap-{receiver_id}", settings),
        connections=connections,
        clock=clock,
        registries=SchemaRegistries.of_host(settings).get,
        settings=ReceiverSettings(
            flush_rows=flush_rows,
            flush_bytes=flush_bytes,
            checkpoint_interval_s=checkpoint_interval_s,
            fragments_max=fragments_max,
            merge_bytes_max=merge_bytes_max,
            unbuilt_segments_max=unbuilt_segments_max,
            disk_free_bytes_min=disk_free_bytes_min,
            idle_after_s=idle_after_s,
        ),
    )
    service = ReceiverService(
        cubes,
        host=settings.host,
        announced_host=settings.reached_at(),
        port=settings.receiver_port if port is None else port,
        metrics_port=metrics_port,
        http_limits=HttpLimits.from_settings(settings),
        machine=settings.machine_name(),
        rack=settings.rack,
        placement=settings.placement,
        flight_limits=FlightLimits.from_settings(settings),
        show_clients=connections.statistics.show,
    )
    switch_often()
    try:
        service.start()
    except RtolapError:
        store.close()
        raise
    CycleCollection(clock).collect_until(stopping)
    drained = service.stop()
    store.close()
    if not drained:
        end_now()
