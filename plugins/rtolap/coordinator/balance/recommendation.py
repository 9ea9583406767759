"""The moves of a cube's partitions that its receivers' reports recommend, with the loads before and after."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from rtolap.base.errors import NotYet
from rtolap.coordinator.assigners import Plan
from rtolap.coordinator.balance.balancing import balanced, emptied, pays_from
from rtolap.coordinator.balance.loads import (
    POINTS,
    Owned,
    PartitionLoad,
    completed,
    points_of,
    reported_loads,
)
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.placement.racks import spread
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.protocols.coordinator import messages as wire


class Recommendation(msgspec.Struct, frozen=True):
    """A plan by load. `partition_percent`: partition → part of the load of all cubes."""

    plan: Plan
    load: wire.LoadPlan
    partition_percent: dict[int, float]


class Recommendations:
    def __init__(self, metadata: ClusterMetadata, heartbeats: Heartbeats, placement: PlacementRules) -> None:
        self._metadata = metadata
        self._placement = placement
        self._heartbeats = heartbeats

    def recommend(
        self,
        cube: str,
        control: CubeControl,
        open_sets: Sequence[str],
        *,
        whole: bool = False,
        leaving: Collection[str] | None = None,
        measured: bool = True,
    ) -> Recommendation:
        """Return the plan by load over `open_sets`: over all of them with `whole`, else over those that own
        the cube and as many more as `consumer_tasks_max` permits.

        Partitions of replica sets that are not open move away. `leaving`: what stands in these replica sets
        moves, and nothing else. `measured`: raise NotYet while living owners have not measured their loads.
        Where nobody answers for what moves, the others may themselves wait for it: for history that lacks its
        events.
        """
        controls = self._running(cube, control)
        reported = reported_loads(controls, self._heartbeats.heard().values(), self._metadata.clock.now_ms())
        if measured:
            self._check_measured(cube, control, reported)
        loads = completed(reported)
        points = points_of(loads)
        base = _base(cube, controls, points)
        of_cube = {partition: points[name, partition] for name, partition in points if name == cube}
        chosen = (
            list(dict.fromkeys(open_sets))
            if whole
            else self._chosen(cube, control, open_sets, base, sum(of_cube.values()))
        )
        chosen_base = {name: base.get(name, 0) for name in chosen}
        if leaving is None:
            balance = balanced(control.assignment, of_cube, chosen_base)
        else:
            balance = emptied(control.assignment, of_cube, chosen_base, leaving)
        names = sorted({*control.assignment, *chosen})

        def shown(plan: Plan) -> tuple[wire.SetLoad, ...]:
            planned = {**controls, cube: msgspec.structs.replace(control, assignment=plan)}
            return tuple(_set_load(name, cube, planned, loads, points) for name in names)

        return Recommendation(
            balance.plan,
            wire.LoadPlan(
                before=shown(control.assignment),
                after=shown(balance.plan),
                pays_percent=_percent(pays_from(of_cube, chosen_base)),
                unreported=tuple(sorted(p for p in of_cube if not reported[cube, p].is_whole)),
            ),
            {partition: _percent(its) for partition, its in of_cube.items()},
        )

    def _running(self, cube: str, control: CubeControl) -> dict[str, CubeControl]:
        others = self._metadata.other_controls(cube)
        return {cube: control, **{name: other for name, other in others.items() if other.enabled}}

    def _check_measured(
        self, cube: str, control: CubeControl, reported: Mapping[Owned, PartitionLoad]
    ) -> None:
        living = self._metadata.living_members()
        of_living = {p for name, owned in control.assignment.items() if living.get(name) for p in owned}
        behind = sorted(of_living & set(self._heartbeats.catching_up(cube, control)))
        if behind:
            raise NotYet(
                f"the loads of cube {cube} cannot be compared yet",
                expected="owners that have caught up and report what they hold",
                found=f"partitions {behind} are catching up",
                action="ask again when `catching_up` of the cube's status is empty",
            )
        young = [
            p
            for p in sorted(of_living)
            if reported[cube, p].records_per_s is None and reported[cube, p].held_bytes is not None
        ]
        if young:
            raise NotYet(
                f"the loads of cube {cube} cannot be compared yet",
                expected="owners that have watched the log's ends for ten seconds",
                found=f"no rate of partitions {young}",
                action="ask again; if it stays so, the receivers' logs say why Kafka names no ends",
            )

    def _chosen(
        self,
        cube: str,
        control: CubeControl,
        open_sets: Sequence[str],
        base: Mapping[str, int],
        points: int,
    ) -> list[str]:
        """Return the open owners, and as many others as the cube may have, the least loaded first.

        Of those whose loads differ by less than what a move has to bring, the ones in other racks come first.
        """
        owners = sorted(name for name in set(open_sets) if control.assignment.get(name))
        level = pays_from({0: points}, {name: base.get(name, 0) for name in open_sets})

        def cost(name: str) -> int:
            return base.get(name, 0) // level

        others = sorted(set(open_sets) - set(owners), key=lambda name: (cost(name), base.get(name, 0), name))
        room = max(0, max(1, self._metadata.cube(cube).consumer_tasks_max) - len(owners))
        racks = self._placement.racks()
        return [
            *owners,
            *spread(
                others,
                room,
                cost=cost,
                rack=lambda name: racks.get(name, ""),
                beside=[racks.get(name, "") for name in owners],
            ),
        ]


def _base(cube: str, controls: Mapping[str, CubeControl], points: Mapping[Owned, int]) -> dict[str, int]:
    """Return, by replica set, the load of its partitions of other cubes."""
    base: dict[str, int] = {}
    for other, control in controls.items():
        for name, owned in control.assignment.items() if other != cube else ():
            base[name] = base.get(name, 0) + sum(points[other, p] for p in owned)
    return base


def _set_load(
    name: str,
    cube: str,
    controls: Mapping[str, CubeControl],
    loads: Mapping[Owned, PartitionLoad],
    points: Mapping[Owned, int],
) -> wire.SetLoad:
    held = [(other, p) for other, control in controls.items() for p in control.assignment.get(name, ())]
    rate_is_known = any(load.records_per_s is not None for load in loads.values())
    size_is_known = any(load.held_bytes is not None for load in loads.values())
    return wire.SetLoad(
        replica_set=name,
        partitions=len(controls[cube].assignment.get(name, ())),
        load_percent=_percent(sum(points[owned] for owned in held)),
        records_per_s=(
            round(sum(loads[owned].records_per_s or 0.0 for owned in held), 1) if rate_is_known else None
        ),
        lag_records=sum(loads[owned].lag_records or 0 for owned in held),
        held_bytes=sum(loads[owned].held_bytes or 0 for owned in held) if size_is_known else None,
    )


def _percent(points: int) -> float:
    return round(100 * points / POINTS, 1)
