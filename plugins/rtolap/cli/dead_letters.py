"""`rtolap dead-letters` shows records that could not be read, with where they came from and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from rtolap.base.decoding import convert
from rtolap.base.settings import Settings
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.kafka_access import kafka_cluster
from rtolap.cli.output import JsonOption, print_table
from rtolap.cli.watching import repeatable
from rtolap.kafka.dead_letters import DeadLetter, read_dead_letters
from rtolap.model.table import Table

app = typer.Typer(help="Records that were refused.")

COLUMNS = ("topic", "partition", "offset", "reason", "detail", "value")


LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number, the oldest first.")]
ReasonOption = Annotated[str | None, typer.Option(help="Only those with this reason.")]


@app.command("list")
@repeatable
def list_records(
    table: Annotated[str, typer.Argument(help="The table whose topic refused them.")],
    limit: LimitOption = 50,
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """List refused records, each once, however many receivers reported it."""
    with coordinator_client() as client:
        declared = convert(client.table(table), Table)
    cluster = kafka_cluster(Settings(), declared.kafka_cluster)
    print_letters(read_dead_letters(cluster, declared.dead_letter_topic), limit, reason, as_json=as_json)


def print_letters(letters: Iterable[DeadLetter], limit: int, reason: str | None, *, as_json: bool) -> None:
    """Print at most `limit` letters, each record once, by its place in its topic."""
    seen: dict[tuple[str, int, int], DeadLetter] = {}
    for letter in letters:
        if reason is None or letter.reason == reason:
            seen.setdefault((letter.topic, letter.partition, letter.offset), letter)
        if len(seen) >= limit:
            break
    print_table(COLUMNS, [seen[place] for place in sorted(seen)], as_json=as_json)
