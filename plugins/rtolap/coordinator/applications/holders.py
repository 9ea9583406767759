"""The holders of the watermarks of an application at this moment: a sample for its history, and its units."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from rtolap.coordinator.applications.history import HOSTS_KEPT, UNITS_KEPT, Holder, Sample
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.coordinator.applications.sources import SourceState
from rtolap.metadata.records import UnitKey
from rtolap.protocols.watermark import messages as wire
from rtolap.watermark.missing import deficit_ms
from rtolap.watermark.snapshot import NEVER, Instants, Rates
from rtolap.watermark.topology import Unit

_LAST = np.iinfo(np.int64).max


def sample(running: RunningApplication, now_ms: int) -> Sample:
    marks = running.published.marks
    holding: dict[str, int] = {}
    hosts: dict[str, Sequence[Holder]] = {}
    with running.lock:
        for level, source in running.sources.items():
            if source.awaited:  # the rule is not evaluated before they have reported
                hosts[level] = [
                    (_partition(partition), NEVER) for partition in sorted(source.awaited)[:HOSTS_KEPT]
                ]
            elif source.named:
                latest_ms = _counting_ms(source)
                mark_ms = marks.levels[level].input_ms if level in marks.levels else None
                holding[level] = int(np.count_nonzero(latest_ms <= (NEVER if mark_ms is None else mark_ms)))
                hosts[level] = _foremost(source, latest_ms, now_ms)
            else:
                hosts[level] = _partitions(source)
        units = {
            level: _oldest(level, units_of_level)
            for level, units_of_level in running.units.work(marks).items()
        }
    return Sample(now_ms, marks, holding, hosts, units)


def units(running: RunningApplication, level: str | None, now_ms: int, limit: int) -> wire.UnitsInfo:
    """Return the units of a level, the oldest work first and units without work last. Raises DefinitionError
    for an unknown level."""
    names = running.levels(level)
    marks = running.published.marks
    infos: list[wire.UnitInfo] = []
    counts: dict[str, int] = {}
    with running.lock:
        work = running.units.work(marks)
        for name in names:
            awaited = {(key.processor, key.key_group) for key in running.units.awaited(name)}
            counts[name] = len(work.get(name, ()))
            output_ms = marks.levels[name].output_ms if name in marks.levels else None
            infos += (
                _info(name, unit, (unit.processor, unit.key_group) in awaited, output_ms, now_ms)
                for unit in work.get(name, ())
            )
    return wire.UnitsInfo(
        application=running.application.name,
        now_ms=now_ms,
        counts=counts,
        units=tuple(heapq.nsmallest(limit, infos, key=_by_work)),
    )


def _info(level: str, unit: Unit, awaited: bool, output_ms: int | None, now_ms: int) -> wire.UnitInfo:
    oldest_ms = unit.oldest_work_ms
    return wire.UnitInfo(
        level=level,
        processor=unit.processor,
        key_group=unit.key_group,
        oldest_work_ms=oldest_ms,
        behind_ms=None if oldest_ms is None else now_ms - oldest_ms,
        lease_left_ms=max(unit.lease_until_ms - now_ms, 0),
        awaited=awaited,
        holds=oldest_ms is not None and (output_ms is None or oldest_ms <= output_ms),
    )


def _by_work(unit: wire.UnitInfo) -> tuple[bool, int, str, str, int]:
    work_ms = unit.oldest_work_ms
    return (work_ms is None, work_ms or 0, unit.level, unit.processor, unit.key_group)


def _counting_ms(source: SourceState) -> Instants:
    """Return the progress of each host; the end of time for a host that does not count."""
    counting = source.hosts.listed & ~source.hosts.drained
    latest_ms: Instants = np.where(counting, source.progress.latest_ms(), _LAST)
    return latest_ms


def _foremost(source: SourceState, latest_ms: Instants, now_ms: int) -> list[Holder]:
    """Return those that hold it most: by the events missing of them where the rule counts events, else by
    progress."""
    order: Instants | Rates = latest_ms
    if source.source.rule.deficit is not None:
        owed = source.snapshot(now_ms).events_per_ms * deficit_ms(latest_ms, now_ms, source.window_ms)
        order = -owed if owed.any() else latest_ms
    last = min(HOSTS_KEPT, order.size)
    places = np.argpartition(order, last - 1)[:last] if last else np.empty(0, np.int64)
    places = places[np.argsort(order[places], kind="stable")]
    return [(source.hosts.names[at], int(latest_ms[at])) for at in places.tolist() if latest_ms[at] != _LAST]


def _partition(number: int) -> str:
    return f"partition {number}"


def _partitions(source: SourceState) -> list[Holder]:
    """Return the holders of a source that knows no hosts: its partitions."""
    reached = source.progress.partition_latest_ms()
    holders = ((_partition(partition), reached.get(partition, NEVER)) for partition in source.generations())
    return heapq.nsmallest(HOSTS_KEPT, holders, key=lambda holder: holder[1])


def _oldest(level: str, work: Iterable[Unit]) -> list[Holder]:
    pending = (
        (UnitKey(level, unit.processor, unit.key_group), unit.oldest_work_ms)
        for unit in work
        if unit.oldest_work_ms is not None
    )
    return heapq.nsmallest(UNITS_KEPT, pending, key=lambda holder: (holder[1], holder[0]))
