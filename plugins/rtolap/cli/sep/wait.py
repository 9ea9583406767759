"""`rtolap sep wait`: all that was written before now has been delivered."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.cli.output import JsonOption, console, print_json, success
from rtolap.cli.sep.cluster import ClusterOption, key_of
from rtolap.model.durations import parse_duration_ms
from rtolap.model.instants import instant_ms
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.status.wait import DueLogs, check_peer, due_logs, wait_delivered


def wait(
    name: Annotated[str, typer.Argument(help="The subscription, or another peer of HBase.")],
    timeout: Annotated[str, typer.Option(help="Give up after so long, such as 10m.")] = "10m",
    before: Annotated[
        str | None, typer.Option(help="What was written before this instant, in the past; else before now.")
    ] = None,
    cluster: ClusterOption = "",
    as_json: JsonOption = False,
) -> None:
    """Wait until all that was written before now has been delivered.

    Each region server is requested to begin another log, once. Exit code 1 when the time is over.
    """
    timeout_ms = parse_duration_ms(timeout)
    with ReplicationSources.open(key_of(cluster)) as sources:
        check_peer(sources.master, name)
        due = due_logs(sources.znodes, name, before_ms=None if before is None else instant_ms(before))
        wait_delivered(
            sources.znodes, due, timeout_s=timeout_ms / 1000, on_look=lambda left: _tell(due, left, as_json)
        )
    if as_json:
        print_json({"peer": name, "delivered": True, "logs": due.logs})
    else:
        success(f"all that was written is delivered to {name}")


def _tell(due: DueLogs, left: DueLogs, as_json: bool) -> None:
    if left.logs and not as_json and console.is_terminal:
        console.print(f"{len(left.logs)} of {len(due.logs)} logs are waited for", highlight=False, end="\r")
