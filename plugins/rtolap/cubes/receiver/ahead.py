"""Runners that are ahead: they read for an assignment that a move prepares, beside the runner that serves.

A replica set whose partitions a move changes has two runners of the cube. The one that serves follows the
assignment that stands. The one ahead begins at `replay_from`, as any fresh receiver does, holds what the set
has to hold then, and leads nothing: it closes no segment, uploads nothing and names no offset to replay from.
A statement names the epoch of its assignment, and the runner of that epoch answers it. So no answer is put
together out of two runners, and nothing is merged when the assignment changes: the runner ahead becomes the
one that serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rtolap.base.ids import bound
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.metadata.records import CubeControl, NextAssignment, move_id
from rtolap.metadata.store import Election


class HeldElection:
    """A candidacy that leads nothing until it is released."""

    def __init__(self, election: Election) -> None:
        self._election = election
        self._held = True

    def release(self) -> None:
        self._held = False

    def is_leader(self) -> bool:
        return not self._held and self._election.is_leader()

    def fence(self) -> str | None:
        return None if self._held else self._election.fence()

    def node(self) -> str | None:
        return None if self._held else self._election.node()

    def term(self) -> int | None:
        return None if self._held else self._election.term()

    def leader(self) -> str | None:
        return self._election.leader()

    def step_back(self) -> bool:
        return not self._held and self._election.step_back()

    def close(self) -> None:
        """Do nothing: the candidacy is the process's."""


@dataclass(frozen=True)
class AheadRunner:
    runner: CubeRunner
    planned: NextAssignment
    election: HeldElection

    def logged(self, cube: str) -> AbstractContextManager[None]:
        """Work under the id of the move that it reads for."""
        return moving(cube, self.planned)

    def stands(self, control: CubeControl) -> bool:
        """Return True if the assignment that it reads for stands."""
        return control.assignment_epoch == self.planned.epoch

    def void(self, control: CubeControl) -> bool:
        """Return True if its assignment will never stand."""
        if not control.assignment_epoch or self.stands(control):
            return False
        return control.next is None or control.next.epoch != self.planned.epoch


def moving(cube: str, planned: NextAssignment) -> AbstractContextManager[None]:
    """Work under the id of the move that prepares this assignment."""
    return bound(cube=cube, move=move_id(cube, planned.epoch))


def runner_of(
    cube: str, epoch: int | None, serving: Mapping[str, CubeRunner], ahead: Mapping[str, AheadRunner]
) -> CubeRunner | None:
    """Return the runner that answers for the assignment of that epoch; None where the cube has none."""
    one = ahead.get(cube)
    if one is not None and epoch == one.planned.epoch:
        return one.runner
    return serving.get(cube)
