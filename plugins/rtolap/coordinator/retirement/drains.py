"""Drains of replica sets: their partitions of all cubes move to others, and none come back.

  1. mark     the replica set is given no partitions any more, by whatever plan; its record bounds the cubes
  2. plan     a move with warm-up for each cube that has partitions there, a few at a time
  3. go on    the leader plans the next moves when some have ended, until no cube has partitions there

A crash between them leaves the mark and the moves that were planned; each leader goes on with these, and
with the rest (`relief`). Partitions of a lost replica set move at once: there is nobody to warm up beside.
"""

from __future__ import annotations

import logging
import threading

import msgspec

from rtolap.base.errors import NotYet, Refused
from rtolap.coordinator.assigners import gaining
from rtolap.coordinator.balance.recommendation import Recommendations
from rtolap.coordinator.moves import Moves
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.coordinator.reassignment import MoveCause, Reassignments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl
from rtolap.protocols.coordinator import messages as wire

log = logging.getLogger(__name__)

NEXT_IN_LINE = "waits for the moves of other cubes"


class Said(msgspec.Struct, frozen=True):
    """The outcome of the last attempt to move a cube: `waits` goes by itself, `refused` needs somebody."""

    waits: str = ""
    refused: str = ""


class Drains:
    """Thread-safe: a request and the leader's own work plan one after the other."""

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
        self._planning = threading.Lock()
        self._said: dict[tuple[str, str], Said] = {}  # by replica set and cube; of cubes that are left
        self._lost: frozenset[str] = frozenset()
        self._planned: dict[str, int] = {}  # replica set → moves that this leader has planned to relieve it

    def clear(self) -> None:
        """Forget what was met, as a fresh leader begins."""
        self._said.clear()

    def note_lost(self, names: frozenset[str]) -> None:
        """Note which replica sets are lost: moves that wait for them are planned anew."""
        self._lost = names

    def planned(self) -> dict[str, int]:
        """Return, by replica set, how many moves this coordinator has planned to relieve it."""
        return dict(self._planned)

    def drain(self, name: str, request: wire.DrainRequest) -> wire.Drain:
        """Begin the drain of a replica set, or change its bound, and return the cubes that are left.

        Raises NotFound, and Refused where no other replica set could take partitions. Nothing is changed
        then, nor for a dry run. To undo it cancels the moves that are planned for it.
        """
        record = self._metadata.replica_set(name)
        if request.undo:
            if not request.dry_run:
                self._metadata.drain_replica_set(name, draining=False)
                self.keep(name)
            return wire.Drain(replica_set=name, draining=record.draining and request.dry_run)
        others = self._others(name)
        if not others and (holding := self._concerned(name)):
            raise Refused(
                f"replica set {name} cannot be drained",
                expected="another replica set with a living receiver that is not drained",
                found=f"none, and partitions of {', '.join(sorted(holding))}",
                action="start a receiver in another replica set first",
            )
        if request.dry_run:
            return self._shown(name, others, draining=record.draining)
        self._metadata.drain_replica_set(name, draining=True, cubes_max=request.cubes_max)
        moves = self.go_on(name, drain_cause(name), request.cubes_max)
        progress = self.progress(name)
        cubes = [cube.model_copy(update={"moves": moves.get(cube.cube, ())}) for cube in progress.cubes]
        return progress.model_copy(update={"cubes": tuple(cubes)})

    def progress(self, name: str) -> wire.Drain:
        """Return the cubes that have partitions in a replica set, or get some, and what each waits for.
        Changes nothing. Raises NotFound."""
        record = self._metadata.replica_set(name)
        cubes = [self._cube(name, cube, control) for cube, control in sorted(self._concerned(name).items())]
        return wire.Drain(
            replica_set=name, draining=record.draining, cubes_max=record.cubes_max, cubes=tuple(cubes)
        )

    def go_on(self, name: str, cause: MoveCause, cubes_max: int = 1) -> dict[str, tuple[wire.Move, ...]]:
        """Plan moves off a replica set, so that `cubes_max` cubes warm up at a time; return what was planned.

        What keeps a cube is noted for `progress`, and the others go on.
        """
        with self._planning:
            controls = self._concerned(name)  # of a drained one, no partition is added from here on
            for left in [key for key in self._said if key[0] == name and key[1] not in controls]:
                del self._said[left]
            others = self._others(name)
            moving = {cube for cube, control in controls.items() if _leaves(control, name)}
            planned: dict[str, tuple[wire.Move, ...]] = {}
            for cube, control in sorted(controls.items()):
                if control.next is not None and not self._is_stuck(control, cause):
                    self._said.pop((name, cube), None)
                elif not cause.at_once and len(moving - {cube}) >= cubes_max:
                    if not self._said.get((name, cube), Said()).refused:
                        self._said[name, cube] = Said(waits=NEXT_IN_LINE)
                else:
                    moving.discard(cube)
                    move = self._plan(name, cube, others, cause)
                    if move is not None:
                        planned[cube] = move.moves
                    if move is not None and move.planned_epoch is not None:
                        moving.add(cube)
            return planned

    def keep(self, name: str) -> None:
        """Cancel the moves that the leader has planned to relieve a replica set: it keeps what it has."""
        with self._planning:
            for cube, control in self._concerned(name).items():
                if (
                    control.next is not None
                    and control.next.relieves == name
                    and self._moves.cancel_relief(cube, name)
                ):
                    log.info("cube %s: stays in replica set %s", cube, name)

    def _plan(self, name: str, cube: str, others: list[str], cause: MoveCause) -> wire.Reassignment | None:
        """Plan the move of a cube; None where something keeps it, which is noted."""
        try:
            if not others:
                raise NotYet(
                    f"partitions of cube {cube} cannot move off replica set {name}",
                    expected="another replica set with a living receiver that may be given partitions",
                    found="none",
                    action="start a receiver in another replica set",
                )
            control = self._metadata.control(cube)
            if control.next is not None:  # it is stuck
                log.warning("cube %s: %s: the move that runs is planned anew", cube, cause.reason)
                self._moves.end(cube, control.next.epoch)
                control = self._metadata.control(cube)
            planned = self._move(name, cube, control, others, cause=cause)
        except NotYet as error:
            self._said[name, cube] = Said(waits=str(error))
            return None
        except Refused as error:
            if self._said.get((name, cube)) != (said := Said(refused=str(error))):
                log.warning("cube %s stays in replica set %s: %s", cube, name, error)
                self._said[name, cube] = said
            return None
        self._said.pop((name, cube), None)
        self._planned[name] = self._planned.get(name, 0) + 1
        log.info("cube %s: %s: moves to %s", cube, cause.reason, planned.after)
        return planned

    def _is_stuck(self, control: CubeControl, cause: MoveCause) -> bool:
        """Return True if the move that runs cannot end, or not in time.

        That is any move of a cube that has partitions in a lost replica set: it waits for its receivers, or
        for history that only a new owner can bring on. A drain's move is stuck, too, where it gives
        partitions to a replica set that is lost, or drained by now.
        """
        if control.next is None or cause.at_once:
            return cause.at_once
        if control.next.relieves != cause.relieves:
            return False
        records = self._metadata.replica_sets()
        return any(
            taking not in records or records[taking].draining or taking in self._lost
            for taking in gaining(control.assignment, control.next.assignment)
        )

    def _concerned(self, name: str) -> dict[str, CubeControl]:
        """Return the cubes that have partitions there, or are about to."""
        controls = {cube: self._metadata.control(cube) for cube in self._metadata.cubes()}
        return {cube: control for cube, control in controls.items() if control.has_partitions_in(name)}

    def _others(self, name: str) -> list[str]:
        left_out = {name, *self._metadata.drained()}
        living = self._metadata.living_members()
        others = [other for other, its in living.items() if its and other not in left_out]
        refused = self._placement.refused(others)
        return [other for other in others if other not in refused]

    def _cube(self, name: str, cube: str, control: CubeControl) -> wire.DrainedCube:
        said = self._said.get((name, cube), Said())
        waits = self._moves.waits(cube, control) or ((said.waits,) if said.waits else ())
        return wire.DrainedCube(
            cube=cube,
            partitions=control.assignment.get(name, ()),
            planned_epoch=control.next.epoch if control.next is not None else None,
            waits=waits,
            refused=said.refused,
        )

    def _shown(self, name: str, others: list[str], *, draining: bool) -> wire.Drain:
        """Return what a drain would move."""
        cubes = []
        for cube, control in sorted(self._concerned(name).items()):
            found = self._cube(name, cube, control).model_copy(update={"refused": ""})
            if control.next is None:
                found = found.model_copy(update=self._moves_shown(name, cube, control, others))
            cubes.append(found)
        return wire.Drain(replica_set=name, draining=draining, cubes=tuple(cubes))

    def _moves_shown(
        self, name: str, cube: str, control: CubeControl, others: list[str]
    ) -> dict[str, object]:
        try:
            return {"moves": self._move(name, cube, control, others, cause=None).moves, "waits": ()}
        except NotYet as error:
            return {"waits": (str(error),)}
        except Refused as error:
            return {"refused": str(error)}

    def _move(
        self, name: str, cube: str, control: CubeControl, others: list[str], *, cause: MoveCause | None
    ) -> wire.Reassignment:
        """Move what the cube has in this replica set; with warm-up, also in others that are drained.

        `cause`: None shows the moves and changes nothing.

        A cube that is switched off has no receivers that could warm up, and none that answer: its assignment
        changes at once, as that of a cube whose owner is lost.
        """
        as_planned = cause or drain_cause(name)
        leaving = {name} if as_planned.at_once else {name, *self._metadata.drained()}
        plan = self._recommendations.recommend(
            cube, control, others, leaving=leaving, measured=not as_planned.at_once
        ).plan
        wanted = wire.ReassignRequest(
            assignment=plan,
            epoch=control.assignment_epoch,
            dry_run=cause is None,
            warm_up=control.enabled and not as_planned.at_once,
        )
        return self._reassignments.reassign(cube, wanted, as_planned)


def drain_cause(name: str) -> MoveCause:
    """Return the cause of moves off a replica set that is drained."""
    return MoveCause(name, f"replica set {name} is drained", False, lambda record: record.draining)


def _leaves(control: CubeControl, name: str) -> bool:
    return control.next is not None and not control.next.assignment.get(name)
