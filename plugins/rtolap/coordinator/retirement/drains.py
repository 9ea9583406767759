"""Drains of replica sets: their partitions of all cubes move to others, and none come back.

  1. mark     the replica set is given no partitions any more, by whatever plan
  2. plan     a move with warm-up for each cube that has partitions there, a few at a time
  3. repeat   `drain` again, until it names no cube: it plans the next moves when some have ended

A crash between them leaves the mark and the moves that were planned; each leader goes on with these, and a
repetition with the rest. Nothing is lost where nobody repeats it: the replica set serves what it has.
"""

from __future__ import annotations

import logging

from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.coordinator.balance.recommendation import Recommendations
from rtolap.coordinator.moves import Moves
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.reassignment import Reassignments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.protocols.coordinator import messages as wire

log = logging.getLogger(__name__)

NEXT_IN_LINE = "waits for the moves of other cubes"


class Drains:
    def __init__(
        self,
        metadata: ClusterMetadata,
        recommendations: Recommendations,
        reassignments: Reassignments,
        moves: Moves,
        placement: PlacementRules,
    ) -> None:
        self._metadata = metadata
        self._reassignments = reassignments
        self._moves = moves
        self._recommendations = recommendations
        self._placement = placement

    def drain(self, name: str, request: wire.DrainRequest) -> wire.Drain:
        """Go on with the drain of a replica set, and return the cubes that still have partitions there.

        Raises NotFound, and Refused where no other replica set could take partitions. Nothing is changed
        then, nor for a dry run.
        """
        record = self._metadata.replica_sets().get(name)
        if record is None:
            raise NotFound(f"replica set {name} does not exist")
        if request.undo:
            if not request.dry_run:
                self._metadata.drain_replica_set(name, draining=False)
            return wire.Drain(replica_set=name, draining=record.draining and request.dry_run)
        controls = self._concerned(name)
        others = self._others(name)
        if controls and not others:
            raise Refused(
                f"replica set {name} cannot be drained",
                expected="another replica set with a living receiver that is not drained",
                found=f"none, and partitions of {', '.join(sorted(controls))}",
                action="start a receiver in another replica set first",
            )
        if not request.dry_run:
            self._metadata.drain_replica_set(name, draining=True)
            controls = self._concerned(name)  # no partition is added from here on
        running = sum(_leaves(control, name) for control in controls.values())
        cubes = []
        for cube, control in sorted(controls.items()):
            drained = self._drained(
                name, cube, control, others, request, may_begin=running < request.cubes_max
            )
            running += drained.planned_epoch is not None and control.next is None
            cubes.append(drained)
        return wire.Drain(
            replica_set=name, draining=record.draining or not request.dry_run, cubes=tuple(cubes)
        )

    def _concerned(self, name: str) -> dict[str, CubeControl]:
        """Return the cubes that have partitions there, or are about to."""
        controls = {cube: self._metadata.control(cube) for cube in self._metadata.cubes()}
        return {cube: control for cube, control in controls.items() if control.has_partitions_in(name)}

    def _living(self) -> dict[str, tuple[str, ...]]:
        live = set(self._metadata.live_receivers())
        return {
            name: tuple(receiver for receiver in record.receivers if receiver in live)
            for name, record in self._metadata.replica_sets().items()
        }

    def _others(self, name: str) -> list[str]:
        drained = self._metadata.drained()
        others = [other for other, its in self._living().items() if its and other not in {name, *drained}]
        refused = self._placement.refused(others)
        return [other for other in others if other not in refused]

    def _drained(
        self,
        name: str,
        cube: str,
        control: CubeControl,
        others: list[str],
        request: wire.DrainRequest,
        *,
        may_begin: bool,
    ) -> wire.DrainedCube:
        answer = wire.DrainedCube(cube=cube, partitions=control.assignment.get(name, ()))
        if control.next is not None:
            waits = self._moves.waits(cube, control)
            return answer.model_copy(update={"planned_epoch": control.next.epoch, "waits": waits})
        if not may_begin and not request.dry_run:
            return answer.model_copy(update={"waits": (NEXT_IN_LINE,)})
        try:
            planned = self._move(cube, control, others, dry_run=request.dry_run)
        except NotYet as error:
            return answer.model_copy(update={"waits": (str(error),)})
        except Refused as error:
            return answer.model_copy(update={"refused": str(error)})
        waits = self._moves.waits(cube, self._metadata.control(cube))
        return answer.model_copy(
            update={"moves": planned.moves, "planned_epoch": planned.planned_epoch, "waits": waits}
        )

    def _move(
        self, cube: str, control: CubeControl, others: list[str], *, dry_run: bool
    ) -> wire.Reassignment:
        """Move what the cube has in drained replica sets. A cube that is switched off has no receivers that
        could warm up, and none that answer: its assignment changes at once."""
        plan = self._recommendations.relieve(cube, control, self._living(), others).plan
        wanted = wire.ReassignRequest(
            assignment=plan, epoch=control.assignment_epoch, dry_run=dry_run, warm_up=control.enabled
        )
        return self._reassignments.reassign(cube, wanted)


def _leaves(control: CubeControl, name: str) -> bool:
    return control.next is not None and not control.next.assignment.get(name)
