"""`rtolap fleet snapshot` records brokers, racks, disks and replicas of a cluster at this moment."""

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
from rtolap.cli.progress import progress_of
from rtolap.cli.watching import repeatable
from rtolap.fleet.operations.rates import rate_reader
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import digest_of, save
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, Floats, ReplicaState
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

COLUMNS = (
    "broker",
    "rack",
    "state",
    "leaders",
    "replicas",
    "moving",
    "in_per_s",
    "out_per_s",
    "log_dir",
    "used_bytes",
    "usable_bytes",
    "disk",
)


@repeatable
def snapshot(
    file: Annotated[
        Path | None, typer.Option("--save", help="Write the snapshot to this file, for plans.")
    ] = None,
    sources: SourcesOption = None,
    cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot: replicas, disks, running moves, rates, and the facts that could not be read."""
    rates = rate_reader(sources or Settings().fleet_sources)
    with open_administration(cluster) as administration, progress_of("asking the brokers"):
        taken = collect_snapshot(administration, SystemClock(), rates)
    if file is not None:
        save(taken, file)
    if as_json:
        print_json(document(taken))
        return
    rows = log_dir_rows(taken)
    print_table(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in rows])
    for missing in taken.missing:
        forbidden = f"; no plan of {', '.join(missing.forbids)}" if missing.forbids else ""
        warn(f"not known: {missing.fact}: {missing.reason}{forbidden}")
    if file is not None:
        found = f"cluster {taken.cluster_id}, {len(taken.partitions)} partitions"
        success(f"{file}: {found}, digest {digest_of(taken)[:12]}")


def document(taken: FleetSnapshot) -> dict[str, Any]:
    return {
        "cluster_id": taken.cluster_id,
        "taken_at_ms": taken.taken_at_ms,
        "controller": taken.controller,
        "digest": digest_of(taken),
        "topics": len(taken.topics),
        "partitions": len(taken.partitions),
        "replicas": len(taken.replicas),
        "not_in_sync": int((~taken.replicas.in_sync).sum()),
        "log_dirs": log_dir_rows(taken),
        "quotas": taken.quotas,
        "missing": taken.missing,
    }


def log_dir_rows(taken: FleetSnapshot) -> list[dict[str, Any]]:
    """Return a row a log directory; one row for a broker without a known directory.

    Bytes a second are of the partitions that the broker leads, None where they are not known.
    """
    brokers, replicas = taken.brokers, taken.replicas
    of_broker = np.bincount(replicas.brokers, minlength=len(brokers))
    led = taken.partitions.leaders
    leaders = np.bincount(led[led != UNKNOWN], minlength=len(brokers))
    changing = (replicas.states != ReplicaState.STAYING) | (replicas.future_log_dirs != UNKNOWN)
    moving = np.bincount(replicas.brokers[changing], minlength=len(brokers))
    into, out = (
        _led_rates(taken, of) for of in (taken.partitions.bytes_in_per_s, taken.partitions.bytes_out_per_s)
    )
    rows = []
    for row in range(len(brokers)):
        known: dict[str, Any] = {
            "broker": int(brokers.ids[row]),
            "rack": brokers.racks[row],
            "state": BrokerState(brokers.states[row]).name,
            "leaders": int(leaders[row]),
            "replicas": int(of_broker[row]),
            "moving": int(moving[row]),
            "in_per_s": None if np.isnan(into[row]) else round(float(into[row])),
            "out_per_s": None if np.isnan(out[row]) else round(float(out[row])),
        }
        dirs = np.flatnonzero(taken.log_dirs.brokers == row)
        rows += [{**known, **_log_dir(taken, int(at))} for at in dirs] or [{**known, **_NO_LOG_DIR}]
    return rows


def _led_rates(taken: FleetSnapshot, rates: Floats) -> Floats:
    """Return sums by broker; NaN where one of its partitions has none."""
    led = taken.partitions.leaders != UNKNOWN
    return np.bincount(taken.partitions.leaders[led], rates[led], len(taken.brokers)).astype(np.float64)


_NO_LOG_DIR: dict[str, Any] = {"log_dir": None, "used_bytes": None, "usable_bytes": None, "disk": None}


def _log_dir(taken: FleetSnapshot, row: int) -> dict[str, Any]:
    replicas, dirs = taken.replicas, taken.log_dirs
    used = int(replicas.size_bytes[replicas.log_dirs == row].sum())
    used += int(replicas.future_bytes[replicas.future_log_dirs == row].sum())
    state = "offline" if dirs.offline[row] else "cordoned" if dirs.cordoned[row] else "online"
    usable = int(dirs.usable_bytes[row])
    return {
        "log_dir": dirs.paths[row],
        "used_bytes": used,
        "usable_bytes": None if usable == UNKNOWN else usable,
        "disk": state,
    }
