"""The load of each partition, out of what the receivers have reported last: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from rtolap.coordinator.heartbeats import SILENT_AFTER_MS, ReceivedHeartbeat
from rtolap.metadata.records import CubeControl
from rtolap.protocols.coordinator.messages import PartitionReport

POINTS = 1_000_000  # all partitions of all cubes together
CATCH_UP_S = 600  # a lag has to be read within this time, beside what arrives; also in docs/moves.md
CONSUMING = "CONSUMING"

Owned = tuple[str, int]  # cube, partition


class PartitionLoad(msgspec.Struct, frozen=True):
    """The demand of a partition on its owner.

    Attributes:
        records_per_s: records that arrive in its log. None: not known.
        lag_records: records that arrived and are not read. None: not known, or its owner reads it again
            after a start or a move, which says nothing about whether the owner is able to follow.
        held_bytes: local data, in memory and on disk. None: not known.
    """

    records_per_s: float | None = None
    lag_records: int | None = None
    held_bytes: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.records_per_s is not None and self.held_bytes is not None


def reported_loads(
    controls: Mapping[str, CubeControl], heard: Iterable[ReceivedHeartbeat], now_ms: int
) -> dict[Owned, PartitionLoad]:
    """Return the load of each partition of these cubes, by what living receivers of its replica set report.

    Of several receivers, the one that has read furthest says the lag, and the one that holds most the bytes.
    """
    reports: dict[Owned, list[tuple[bool, PartitionReport]]] = {
        (cube, partition): []
        for cube, control in controls.items()
        for assigned in control.assignment.values()
        for partition in assigned
    }
    for heartbeat in heard:
        if now_ms - heartbeat.at_ms > SILENT_AFTER_MS:
            continue
        for cube, report in heartbeat.request.cubes.items():
            owned = controls[cube].assignment.get(heartbeat.request.replica_set) if cube in controls else None
            for partition in owned or ():
                if partition in report.partitions:
                    of_owner = report.state == CONSUMING, report.partitions[partition]
                    reports[cube, partition].append(of_owner)
    return {owned: _load(of_owner) for owned, of_owner in reports.items()}


def _load(reports: Collection[tuple[bool, PartitionReport]]) -> PartitionLoad:
    return PartitionLoad(
        records_per_s=max(
            (report.records_per_s for _, report in reports if report.records_per_s is not None), default=None
        ),
        lag_records=min(
            (
                max(0, report.log_end - report.position)
                for follows, report in reports
                if follows and report.log_end is not None
            ),
            default=None,
        ),
        held_bytes=max(
            (report.held_bytes for _, report in reports if report.held_bytes is not None), default=None
        ),
    )


def completed(loads: Mapping[Owned, PartitionLoad]) -> dict[Owned, PartitionLoad]:
    """Fill what is not known of a partition by the mean of the others; a lag by 0. What is known of none
    stays open."""
    rate = _mean([load.records_per_s for load in loads.values()])
    held = _mean([load.held_bytes for load in loads.values()])
    held_bytes = None if held is None else round(held)
    return {
        owned: PartitionLoad(
            records_per_s=rate if load.records_per_s is None else load.records_per_s,
            lag_records=load.lag_records or 0,
            held_bytes=held_bytes if load.held_bytes is None else load.held_bytes,
        )
        for owned, load in loads.items()
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def points_of(loads: Mapping[Owned, PartitionLoad]) -> dict[Owned, int]:
    """Return the load of each partition in points, `POINTS` for all together.

    Half of the points go by the records that have to be read in a second: those that arrive, and the lag
    over `CATCH_UP_S`. Half go by bytes held. All go by one of them where the other is 0 or not known of all
    partitions. Where neither is known, each partition counts alike; where both are 0, nothing has a load.
    """
    if not loads:
        return {}
    if all(load.records_per_s is None and load.held_bytes is None for load in loads.values()):
        return dict.fromkeys(loads, POINTS // len(loads))
    kinds = [kind for kind in (_to_read, _held) if any(map(kind, loads.values()))]
    totals = [sum(map(kind, loads.values())) for kind in kinds]
    return {
        owned: round(
            POINTS * sum(kind(load) / total for kind, total in zip(kinds, totals, strict=True)) / len(kinds)
        )
        if kinds
        else 0
        for owned, load in loads.items()
    }


def _to_read(load: PartitionLoad) -> float:
    return (load.records_per_s or 0.0) + (load.lag_records or 0) / CATCH_UP_S


def _held(load: PartitionLoad) -> float:
    return float(load.held_bytes or 0)
