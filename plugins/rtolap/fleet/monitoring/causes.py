"""Finds the cause of a slow stage of a broker, as far as sources tell: the disk, the followers, a quota.

Stock Kafka times no disk of its own: its metrics of reads and writes know no directory. So the disk behind a
slow `local` stage is found by where the work is, in a snapshot of the fleet: a directory that the broker has
given up, else the one with the highest share of bytes written and read, else of bytes stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.slow import BrokerRequests
from rtolap.fleet.monitoring.stages import REQUEST_NAMES, RequestType, Stage, StageWindow
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot

# Below so much idle time handlers, or network threads, are what requests wait for; Kafka's own advice.
_IDLE_MIN = 0.3


@dataclass(frozen=True)
class LogDirShare:
    """The share of a log directory in the load of its broker.

    Attributes:
        share: 0 to 1.
        measure: Name of the load.
    """

    broker: int
    path: str
    share: float
    measure: str
    offline: bool


def log_dir_shares(snapshot: FleetSnapshot) -> dict[int, list[LogDirShare]]:
    """Return shares by broker id, the most loaded directory first; one that is offline before all others."""
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


@dataclass(frozen=True)
class Cause:
    """The cause of a slow broker.

    Attributes:
        brokers: Brokers to look at instead of this one.
        log_dir: Path of the disk, where the cause is one. None otherwise.
    """

    text: str
    log_dir: str | None = None
    brokers: tuple[int, ...] = ()


def cause_of(
    row: BrokerRequests,
    look: StageLook,
    window: StageWindow,
    shares: Mapping[int, Sequence[LogDirShare]],
) -> Cause | None:
    """Return the cause of slow requests; None if no stage is known.

    `shares` come from `log_dir_shares`, and are empty without a snapshot.
    """
    match row.stage:
        case None:
            return None
        case Stage.LOCAL:
            return _disk(row.broker, look, shares)
        case Stage.REMOTE:
            return _followers(row.broker, look)
        case Stage.REQUEST_QUEUE:
            return _handlers(row.broker, look, window, shares)
        case _:
            idle = look.gauges[row.broker].network_idle if row.broker in look.gauges else None
            idleness = "" if idle is None else f", which are idle for {idle:.0%} of the time"
            return Cause(f"the network, or the broker's network threads{idleness}")


def _disk(broker: int, look: StageLook, shares: Mapping[int, Sequence[LogDirShare]]) -> Cause:
    gauges = look.gauges.get(broker)
    if gauges is not None and gauges.offline_log_dirs:
        path = gauges.offline_log_dirs[0]
        return Cause(f"the log, and {path} is offline", log_dir=path)
    known = shares.get(broker)
    if not known:
        return Cause("the log: writing to and reading from its disks")
    worst = known[0]
    if worst.offline:
        return Cause(f"the log, and {worst.path} is offline", log_dir=worst.path)
    return Cause(f"the log; {worst.path} has {worst.share:.0%} of its {worst.measure}", log_dir=worst.path)


def _followers(broker: int, look: StageLook) -> Cause:
    """Name the followers that do not answer, else those that are behind, the furthest first."""
    silent = tuple(other for other in look.silent_brokers if other != broker)
    if silent:
        return Cause(f"its followers; {_named(silent)} not answer monitoring either", brokers=silent)
    behind = sorted(
        (
            (-gauges.lag_records_max, other)
            for other, gauges in look.gauges.items()
            if other != broker and gauges.lag_records_max
        ),
    )
    brokers = tuple(other for _, other in behind)
    if brokers:
        return Cause(f"its followers; the furthest behind is broker {brokers[0]}", brokers=brokers)
    return Cause("its followers")


def _handlers(
    broker: int, look: StageLook, window: StageWindow, shares: Mapping[int, Sequence[LogDirShare]]
) -> Cause:
    """Name the requests that keep the handlers busy. A request that waits for a handler mostly waits for
    requests of another kind."""
    gauges = look.gauges.get(broker)
    idle = None if gauges is None else gauges.handlers_idle
    rows = np.flatnonzero(window.brokers == broker)
    busy_ms = np.nan_to_num(window.mean_ms[rows, Stage.LOCAL]) * np.maximum(window.counts[rows], 0)
    idleness = "" if idle is None else f", idle for {idle:.0%} of the time"
    if busy_ms.size and busy_ms.max() > 0:
        request = RequestType(window.requests[rows[int(busy_ms.argmax())]])
        disk = _disk(broker, look, shares)
        text = f"its request handlers{idleness}, mostly busy with {REQUEST_NAMES[request]}: {disk.text}"
        return Cause(text, log_dir=disk.log_dir)
    if idle is not None and idle >= _IDLE_MIN:
        return Cause(f"the whole process: handlers are idle for {idle:.0%} of the time, so it was stopped")
    return Cause(f"its request handlers{idleness}")


def _named(brokers: Iterable[int]) -> str:
    ids = list(map(str, brokers))
    return f"broker {ids[0]} does" if len(ids) == 1 else f"brokers {', '.join(ids)} do"
