"""Computes the share of a broker's work that each of its log directories has, by a snapshot of the fleet.

Stock Kafka times no disk of its own: its metrics of reads and writes know no directory. So the disk behind a
slow `local` stage is found by where the work is: a directory that the broker has given up, else the one with
the highest share of bytes written and read, else of bytes stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import UNKNOWN, Snapshot


@dataclass(frozen=True)
class LogDirShare:
    """share: 0 to 1 of its broker's. measure: what it is a share of."""

    broker: int
    path: str
    share: float
    measure: str
    offline: bool


def log_dir_shares(snapshot: Snapshot) -> dict[int, list[LogDirShare]]:
    """By broker id, the most loaded directory first; one that is offline before all others."""
    replicas, partitions, dirs = snapshot.replicas, snapshot.partitions, snapshot.log_dirs
    known = replicas.log_dirs != UNKNOWN
    rows = replicas.log_dirs[known]
    of = replicas.partitions[known]
    # replicas are read by consumers where they lead, and written everywhere
    leading = partitions.leaders[of] == replicas.brokers[known]
    rates = np.nan_to_num(partitions.bytes_in_per_s[of]) + np.where(
        leading, np.nan_to_num(partitions.bytes_out_per_s[of]), 0.0
    )
    stored = np.maximum(replicas.size_bytes[known], 0).astype(np.float64)
    loads = np.bincount(rows, rates, len(dirs)).astype(np.float64)
    sizes = np.bincount(rows, stored, len(dirs)).astype(np.float64)
    found: dict[int, list[LogDirShare]] = {int(broker): [] for broker in snapshot.brokers.ids}
    for broker, broker_id in enumerate(snapshot.brokers.ids.tolist()):
        own = np.flatnonzero(dirs.brokers == broker)
        measure, values = "bytes written and read", loads[own]
        if not values.sum() > 0:
            measure, values = "bytes stored", sizes[own]
        whole = float(values.sum())
        shares = [
            LogDirShare(
                broker_id,
                dirs.paths[row],
                float(value) / whole if whole > 0 else 0.0,
                measure,
                bool(dirs.offline[row]),
            )
            for row, value in zip(own.tolist(), values.tolist(), strict=True)
        ]
        found[broker_id] = sorted(shares, key=lambda it: (not it.offline, -it.share, it.path))
    return found
