"""`rtolap produce`: records into a topic, out of a file or of the demonstration's flights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.errors import NotFound
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption, report
from rtolap.cli.progress import progress_of
from rtolap.demo.flights import DAYS_MAX, Replay, ReplayPlan
from rtolap.demo.produce import Sender, file_batches
from rtolap.kafka.interfaces import TopicAdmin
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

app = typer.Typer(help="Send records.")


@app.command()
def produce(
    source: Annotated[str, typer.Argument(help="A file with one JSON document a line, or `flights`.")],
    topic: Annotated[
        str | None, typer.Option(help="Topic to write; by default `flights`, or the file's stem.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Records per second. Without it: no limit.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of records.")] = None,
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="Days of the flights.")] = DAYS_MAX,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Create a missing topic with this number of partitions.")
    ] = None,
    cluster: Annotated[str, typer.Option(help="Name of the Kafka cluster.")] = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Send records to a topic, and wait until they are stored."""
    settings = Settings()
    is_flights = source == "flights"
    path = Path(source)
    if not is_flights and not path.is_file():
        raise NotFound(f"no file {source}", expected="a file of JSON lines, or flights")
    reached = kafka_cluster(settings, cluster)
    admin, producer = KafkaAdmin(reached), KafkaProducer(reached)
    topic = topic or ("flights" if is_flights else path.stem)
    if partitions is not None:
        admin.create_topic(topic, partitions)
    else:
        find_topic(admin, topic)
    sender = Sender(producer, admin, topic)
    if is_flights:
        replay = Replay(ReplayPlan(partitions=len(sender.first), days=days))
        total: int | None = min(replay.records, limit or replay.records)
        batches = replay.batches(end=limit)
    else:
        total = limit
        batches = file_batches(path, sorted(sender.first), limit)
    with progress_of(f"producing to {sender.topic}", total) as done:
        sent = sender.send(batches, rate=rate, progress=done)
        ends = sender.finish()
    producer.close()
    admin.close()
    sent_to = {"topic": sender.topic, "records": sent, "end_offsets": ends}
    report(sent_to, f"{sent} records stored in {sender.topic}", as_json=as_json)


def find_topic(admin: TopicAdmin, topic: str) -> None:
    """Raise NotFound, which says how to create the topic, where it does not exist."""
    try:
        admin.partitions(topic)
    except NotFound as error:
        raise NotFound(
            f"there is no topic {topic}",
            action="add --partitions 4, or as many as it is to have, to create it",
        ) from error
