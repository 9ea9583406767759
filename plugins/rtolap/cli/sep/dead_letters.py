"""`rtolap sep dead-letters`: events of a subscription that were given up, and why."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption, print_table
from rtolap.cli.sep.cluster import ClusterOption, source_of
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.sep.delivery.poison import dead_letter_topic
from rtolap.sep.subscriptions.kept import load
from rtolap.sep.subscriptions.source import open_source

COLUMNS = ("table", "sequence_id", "detail", "value")


def dead_letters(
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    cluster: ClusterOption = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the oldest first.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the events that its poison policy has skipped."""
    with open_source(source_of(cluster)) as source:
        subscription = load(source.store, name).subscription
    letters = read_dead_letters(
        kafka_cluster(Settings(), subscription.listener.cluster), dead_letter_topic(name)
    )
    rows = [(letter.topic, letter.offset, letter.detail, letter.value) for letter in islice(letters, limit)]
    print_table(COLUMNS, rows, as_json=as_json)
