"""Finds the cause of a slow stage of a broker, as far as sources tell: the disk, the followers, a quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.monitoring.collect import StageLook
from rtolap.fleet.monitoring.disks import LogDirShare
from rtolap.fleet.monitoring.slow import BrokerRequests
from rtolap.fleet.monitoring.stages import REQUEST_NAMES, RequestType, Stage, StageWindow

# Below so much idle time handlers, or network threads, are what requests wait for; Kafka's own advice.
_IDLE_MIN = 0.3


@dataclass(frozen=True)
class Cause:
    """brokers: others to look at in this one's place. log_dir: its disk, where that is meant."""

    text: str
    log_dir: str | None = None
    brokers: tuple[int, ...] = ()


def cause_of(
    row: BrokerRequests,
    look: StageLook,
    window: StageWindow,
    shares: Mapping[int, Sequence[LogDirShare]],
) -> Cause | None:
    """None where no stage is known. `shares`: see `disks`; empty without a snapshot."""
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
            told = "" if idle is None else f", which are idle for {idle:.0%} of the time"
            return Cause(f"the network, or the broker's network threads{told}")


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
    """Followers that do not answer, else those that are behind, the furthest first."""
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
    """Requests wait for handlers: those have something to do, and mostly it is another kind of request."""
    gauges = look.gauges.get(broker)
    idle = None if gauges is None else gauges.handlers_idle
    rows = np.flatnonzero(window.brokers == broker)
    busy_ms = np.nan_to_num(window.mean_ms[rows, Stage.LOCAL]) * np.maximum(window.counts[rows], 0)
    told = "" if idle is None else f", idle for {idle:.0%} of the time"
    if busy_ms.size and busy_ms.max() > 0:
        request = RequestType(window.requests[rows[int(busy_ms.argmax())]])
        disk = _disk(broker, look, shares)
        text = f"its request handlers{told}, mostly busy with {REQUEST_NAMES[request]}: {disk.text}"
        return Cause(text, log_dir=disk.log_dir)
    if idle is not None and idle >= _IDLE_MIN:
        return Cause(f"the whole process: handlers are idle for {idle:.0%} of the time, so it was stopped")
    return Cause(f"its request handlers{told}")


def _named(brokers: Iterable[int]) -> str:
    ids = list(map(str, brokers))
    return f"broker {ids[0]} does" if len(ids) == 1 else f"brokers {', '.join(ids)} do"
