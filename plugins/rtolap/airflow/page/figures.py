"""Sums over what receivers report of partitions: the furthest owner counts for lag, any for a rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rtolap.protocols.coordinator.messages import PartitionReport, ReceiverInfo

_LIVING = ("HEALTHY", "WARN")


class Figures(NamedTuple):
    """Figures of a cube. records_per_s: None while nobody has a rate; freshness_ms: of the slowest receiver,
    None while none has read a record in the last minute."""

    records_per_s: float | None
    lag_records: int
    freshness_ms: int | None


def reports(receivers: Iterable[ReceiverInfo], cube: str) -> Iterator[tuple[int, PartitionReport]]:
    """Give each report of a partition of this cube, by living receivers."""
    for receiver in receivers:
        if receiver.health in _LIVING and cube in receiver.cubes:
            yield from receiver.cubes[cube].partitions.items()


def figures(receivers: Iterable[ReceiverInfo], cube: str) -> Figures:
    """Return the cube's rate, lag and freshness."""
    receivers = tuple(receivers)
    lags: dict[int, int] = {}
    rates: dict[int, float] = {}
    for partition, report in reports(receivers, cube):
        if report.log_end is not None:
            lag = max(report.log_end - report.position, 0)
            lags[partition] = min(lag, lags.get(partition, lag))
        if report.records_per_s is not None:
            rates[partition] = max(report.records_per_s, rates.get(partition, 0.0))
    delays = [
        each.cubes[cube].freshness_ms for each in receivers if each.health in _LIVING and cube in each.cubes
    ]
    freshness_ms = max((delay for delay in delays if delay is not None), default=None)
    return Figures(sum(rates.values()) if rates else None, sum(lags.values()), freshness_ms)
