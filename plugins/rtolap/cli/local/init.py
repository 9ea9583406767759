"""`rtolap init` writes the first definitions of a topic, guessed from its records."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption, print_json, success
from rtolap.cli.progress import progress_of
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.schema_registry import SchemaRegistries
from rtolap.model.formats.record_format import FormatName
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.project.files import write_project
from rtolap.project.guess import DEFAULT_REGISTRY, Source, guess
from rtolap.project.records import first_records

app = typer.Typer()

RECORDS = 1000


@app.command()
def init(
    topic: Annotated[str, typer.Argument(help="Topic with records of JSON, CSV, Avro or Protobuf.")],
    bootstrap: Annotated[
        str,
        typer.Option("--bootstrap", help="Brokers, as host:port. Default: those of this host's settings."),
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Kafka cluster, by its name in the host's settings.")
    ] = DEFAULT_KAFKA_CLUSTER,
    form: Annotated[
        FormatName | None, typer.Option("--format", help="Format of the records. Default: they show it.")
    ] = None,
    registry: Annotated[
        str, typer.Option("--registry", help="Schema registry of Avro and Protobuf, by name.")
    ] = DEFAULT_REGISTRY,
    into: Annotated[Path, typer.Option("--into", help="Folder of the project.")] = Path(),
    records: Annotated[
        int, typer.Option("--records", min=1, max=100_000, help="Records that are read, from the beginning.")
    ] = RECORDS,
    time_column: Annotated[
        str, typer.Option("--time-column", help="Path of the event time. Default: it is guessed.")
    ] = "",
    time_format: Annotated[
        str, typer.Option("--time-format", help="How it is written: epoch_ms, iso8601, a strptime pattern, …")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Guess a table and a cube from the first records of a topic, and write them as YAML with reasons.
    Files that exist are not overwritten."""
    settings = Settings()
    if bootstrap and cluster != DEFAULT_KAFKA_CLUSTER:
        raise typer.BadParameter("name the brokers by --bootstrap or by --cluster, not by both")
    if bootstrap:
        settings = settings.model_copy(update={"kafka": bootstrap, "kafka_clusters": None})
    clock = SystemClock()
    brokers = kafka_cluster(settings, cluster)
    with (
        closing(KafkaConsumer(brokers, topic, client_id="rtolap-init", with_create_ms=True)) as consumer,
        progress_of(f"reading the first records of {topic}"),
    ):
        read = first_records(consumer, records, clock)
    with closing(SchemaRegistries.of_host(settings)) as registries:
        guessed = guess(
            topic,
            read,
            now_ms=clock.now_ms(),
            time_path=time_column,
            time_format=time_format,
            source=Source(form, cluster, registry, registries.get),
        )
    table, cube = write_project(guessed, into)
    if as_json:
        print_json(
            {
                "table": table,
                "cube": cube,
                "records": guessed.looked_at,
                "broken": guessed.broken,
                "left_out": dict(guessed.left_out),
            }
        )
        return
    success(f"{table}: {len(guessed.table.columns)} columns, event time {guessed.table.time.column}")
    success(f"{cube}: {len(guessed.cube.dimensions)} dimensions, {len(guessed.cube.measures)} measures")
    success(f"read both, then: rtolap create {into / 'include'} --enable")
