"""`rtolap fleet tiers` shows what of tiered topics is on disks, what in remote storage, and where copying
lags.

Exit codes: 0 done; 1 an error; 3 a partition's copying lags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import ClusterOption, open_administration
from rtolap.cli.fleet.looking import SourcesOption
from rtolap.cli.output import JsonOption, print_json, print_table, success, warn
from rtolap.fleet.monitoring.sources import read_sources
from rtolap.fleet.snapshot.model import UNKNOWN
from rtolap.fleet.tiers.collect import collect_tiers
from rtolap.fleet.tiers.copy_metrics import read_copies
from rtolap.fleet.tiers.view import (
    SEGMENTS_BEHIND,
    Tier,
    TierView,
    known_sum,
    lagging,
    segments_behind,
    uncopied_bytes,
)
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

EXIT_LAGGING = 3
_TIER_NAMES = tuple(tier.name.lower().replace("_", " ") for tier in Tier)
TOPIC_COLUMNS = (
    *("topic", "partitions", *_TIER_NAMES, "local_bytes", "remote_bytes"),
    *("uncopied_bytes", "segments_behind", "lagging"),
)
PARTITION_COLUMNS = (
    *("partition", "leader", *_TIER_NAMES, "local_bytes", "replica_bytes"),
    *("uncopied_bytes", "segments_behind"),
)


def tiers(
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Topics whose partitions are shown. Default: sums of all tiered topics."),
    ] = None,
    behind: Annotated[
        int,
        typer.Option(
            "--behind",
            min=1,
            help="Number of closed segments of a partition, not copied yet, from which it lags.",
        ),
    ] = SEGMENTS_BEHIND,
    sources: SourcesOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Show which offsets of tiered topics are in remote storage only, on disks too, and on disks only.

    Ends with 3 if copying to remote storage lags."""
    with open_administration(cluster) as administration:
        view = collect_tiers(administration, SystemClock(), topics or None)
    file: Path | None = sources or Settings().fleet_sources
    if file is not None and len(view.partitions):
        view = read_copies(view, read_sources(file))
    documents = topic_documents(view, behind)
    if as_json:
        print_json(
            {
                "cluster_id": view.cluster_id,
                "taken_at_ms": view.taken_at_ms,
                "tiering_brokers": view.tiering,
                "other_brokers": view.not_tiering,
                "topics": [each for each in documents if each["tiered"] or topics],
                "missing": view.missing,
            }
        )
    else:
        _show(view, documents, by_partition=bool(topics))
    if any(each["lagging"] for each in documents):
        raise typer.Exit(EXIT_LAGGING)


def topic_documents(view: TierView, behind: int) -> list[dict[str, Any]]:
    """Return a document for each topic; offsets, bytes and segments are None where they are not known."""
    partitions, copies = view.partitions, view.copies
    offsets = {tier: partitions.offsets(tier) for tier in Tier}
    uncopied, segments, lags = uncopied_bytes(view), segments_behind(view), lagging(view, behind)
    documents = []
    for row, name in enumerate(view.topics.names):
        mine, told = np.flatnonzero(partitions.topics == row), copies.topics == row
        documents.append(
            {
                "topic": name,
                "tiered": bool(view.topics.tiered[row]),
                "copied": bool(view.topics.copied[row]),
                "local_retention_ms": int(view.topics.local_retention_ms[row]),
                "local_retention_bytes": int(view.topics.local_retention_bytes[row]),
                "offsets": {tier.name.lower(): _known(known_sum(offsets[tier][mine])) for tier in Tier},
                "local_bytes": _known(known_sum(partitions.local_bytes[mine])),
                "replica_bytes": int(partitions.replica_bytes[mine].sum()),
                "uncopied_bytes_about": _known(known_sum(uncopied[mine])),
                "segments_behind_min": _known(known_sum(segments[mine])),
                "remote_bytes": _sum_reported(copies.remote_bytes[told]),
                "lag_segments": _sum_reported(copies.lag_segments[told]),
                "lag_bytes": _sum_reported(copies.lag_bytes[told]),
                "copy_errors": _sum_reported(copies.errors[told]),
                "lagging": [int(partitions.numbers[at]) for at in mine if lags[at]],
                "partitions": [
                    {
                        "partition": int(partitions.numbers[at]),
                        "leader": _known(int(partitions.leaders[at])),
                        **{tier.name.lower(): _range(view, at, tier) for tier in Tier},
                        "local_bytes": _known(int(partitions.local_bytes[at])),
                        "replica_bytes": int(partitions.replica_bytes[at]),
                        "uncopied_bytes_about": _known(int(uncopied[at])),
                        "segments_behind_min": _known(int(segments[at])),
                        "lags": bool(lags[at]),
                    }
                    for at in mine.tolist()
                ],
            }
        )
    return documents


def _range(view: TierView, partition: int, tier: Tier) -> list[int] | None:
    """Return the first offset, and the offset after the last one; None if unknown."""
    start, end = view.partitions.bounds[partition, tier : tier + 2].tolist()
    return None if start == UNKNOWN else [start, end]


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _sum_reported(values: np.ndarray) -> int | None:
    """Return the sum of what agents tell, None where none tells."""
    return _known(known_sum(values)) if len(values) else None


def _show(view: TierView, documents: list[dict[str, Any]], *, by_partition: bool) -> None:
    tiered = [each for each in documents if each["tiered"]]
    if by_partition and tiered:
        print_table(
            PARTITION_COLUMNS, [_partition_row(each, row) for each in tiered for row in each["partitions"]]
        )
    elif tiered:
        print_table(TOPIC_COLUMNS, [_topic_row(each) for each in tiered])
    if view.not_tiering:
        named = ", ".join(map(str, view.not_tiering))
        warn(f"brokers without tiered storage (remote.log.storage.system.enable): {named}")
    if not tiered and not by_partition:
        success(f"no topic of cluster {view.cluster_id} is tiered (remote.storage.enable)")
    for each in documents:
        if by_partition and not each["tiered"]:
            success(
                f"{each['topic']} is not tiered (remote.storage.enable): all of it is on the brokers' disks"
            )
        if each["tiered"] and not each["copied"]:
            warn(f"{each['topic']}: copying is switched off (remote.log.copy.disable)")
        if each["copy_errors"]:
            warn(f"{each['topic']}: {each['copy_errors']} copies have failed since the brokers' start")
        for row in each["partitions"]:
            if row["lags"]:
                warn(_lag(each, row))
    for missing in view.missing:
        warn(f"not known: {missing.fact}: {missing.reason}")


def _lag(topic: dict[str, Any], row: dict[str, Any]) -> str:
    counted = "" if topic["lag_segments"] is None else f"; of the topic {topic['lag_segments']} segments"
    start = "?" if row["local_only"] is None else row["local_only"][0]
    return (
        f"{topic['topic']}:{row['partition']}: copying lags: {row['segments_behind_min']} closed segments or"
        f" more, about {row['uncopied_bytes_about']} bytes from offset {start} on, are on disks only"
        f" (leader {row['leader']}{counted})"
    )


def _topic_row(each: dict[str, Any]) -> tuple[Any, ...]:
    behind = each["segments_behind_min"] if each["lag_segments"] is None else each["lag_segments"]
    return (
        each["topic"],
        len(each["partitions"]),
        *(each["offsets"][tier.name.lower()] for tier in Tier),
        each["local_bytes"],
        each["remote_bytes"],
        each["uncopied_bytes_about"],
        behind,
        len(each["lagging"]),
    )


def _partition_row(topic: dict[str, Any], row: dict[str, Any]) -> tuple[Any, ...]:
    ranges = (row[tier.name.lower()] for tier in Tier)
    return (
        f"{topic['topic']}:{row['partition']}",
        row["leader"],
        *(None if bounds is None else "–".join(map(str, bounds)) for bounds in ranges),
        row["local_bytes"],
        row["replica_bytes"],
        row["uncopied_bytes_about"],
        row["segments_behind_min"],
    )
