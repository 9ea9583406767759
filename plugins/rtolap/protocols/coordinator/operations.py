"""Use cases that take several calls to a coordinator: the same for commands and for tasks of Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rtolap.base.errors import DefinitionError, NotYet, Refused
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import (
    Alteration,
    AlterRequest,
    BatchPlanMessage,
    BatchProgress,
    Definition,
    Drain,
    DrainedCube,
    DrainRequest,
    LevelledBy,
    Reassignment,
    ReassignRequest,
)

T = TypeVar("T")

READY = "READY"
REMOTE_PERSISTED = "REMOTE_PERSISTED"
HEARD_WITHIN_S = 20.0  # receivers report each second, and find a new leader within a few
_LOOK_S = 0.2


def reassignment_plan(
    client: CoordinatorClient,
    cube: str,
    *,
    over: Sequence[str] | None,
    moves: Sequence[str] | None,
    by: LevelledBy = "count",
) -> Reassignment:
    """Return what would move, and change nothing.

    `over`: replica sets to spread the partitions over; `moves`: single ones, as PARTITION=REPLICA_SET; with
    neither, partitions are levelled, by their number or by their load. Raises DefinitionError for a move that
    is none of this cube, and Refused where the coordinator does not know of loads.
    """
    assignment = _with_moves(client.cube(cube).assignment, moves) if moves else None
    replica_sets = tuple(over) if over else None
    wanted = ReassignRequest(assignment=assignment, replica_sets=replica_sets, by=by, dry_run=True)
    plan = client.reassign(cube, wanted)
    if by == "load" and assignment is None and plan.load is None:
        raise Refused(
            f"there is no plan by load for cube {cube}",
            expected="a coordinator that plans by load",
            found="a plan by the number of partitions: the coordinator is of an older version",
            action="update the coordinators, or plan without `--by load`",
        )
    return plan


def apply_move(
    client: CoordinatorClient, plan: Reassignment, *, wait_s: float, warm_up: bool | None = None
) -> Reassignment:
    """Carry the plan out as it was shown, and wait until the new owners can answer.

    `warm_up`: see `ReassignRequest`. Raises what the coordinator refuses where the cube is assigned otherwise
    by now, and NotYet, which names what is waited for: the move goes on, or stands, all the same.
    """
    wanted = ReassignRequest(assignment=plan.after, epoch=plan.epoch, warm_up=warm_up)
    begun = client.reassign(plan.cube, wanted).model_copy(update={"load": plan.load})
    if begun.planned_epoch is not None:
        return wait_for_move(client, begun, wait_s=wait_s)
    deadline_s = time.monotonic() + wait_s
    while wait_s > 0 and (behind := client.cube(plan.cube).catching_up):
        if time.monotonic() > deadline_s:
            raise NotYet(
                f"partitions {list(behind)} of {plan.cube} are not caught up after {wait_s:g} s",
                action="the reassignment stands; `rtolap receivers list` shows how far they are",
            )
        time.sleep(_LOOK_S)
    return begun


def wait_for_move(client: CoordinatorClient, planned: Reassignment, *, wait_s: float) -> Reassignment:
    """Wait for a move that runs. Raises NotYet, and Refused where it was cancelled meanwhile."""
    deadline_s = time.monotonic() + wait_s
    while wait_s > 0 and planned.planned_epoch is not None:
        status = client.cube(planned.cube)
        if status.assignment_epoch >= planned.planned_epoch:
            return planned.model_copy(update={"applied": True, "epoch": status.assignment_epoch})
        if status.next_epoch != planned.planned_epoch:
            raise Refused(
                f"the move of {planned.cube} was given up meanwhile",
                expected=f"epoch {planned.planned_epoch}",
                found=f"epoch {status.assignment_epoch}",
                action="look at the plan again",
            )
        if time.monotonic() > deadline_s:
            raise NotYet(
                f"the move of {planned.cube} has not ended after {wait_s:g} s",
                found="; ".join(status.move_waits) or "the coordinator looks once a second",
                action="it goes on; `rtolap receivers cancel-move` ends it",
            )
        time.sleep(_LOOK_S)
    return planned


def drained_replica_set(
    client: CoordinatorClient,
    name: str,
    *,
    cubes_max: int,
    wait_s: float,
    progress: Callable[[Drain], None] = lambda drain: None,
) -> Drain:
    """Have a replica set drained, and wait until it has no partitions. The leader goes on, whoever waits.

    `progress` is called with every answer that differs from the one before. Raises what the coordinator
    refuses; Refused where nothing moves and each cube that is left needs somebody to act; NotYet after
    `wait_s`. With a wait of 0, it returns once the drain has begun.
    """
    deadline_s = time.monotonic() + wait_s
    drain, before = client.drain_replica_set(name, DrainRequest(cubes_max=cubes_max)), None
    while drain.cubes and wait_s > 0:
        if drain != before:
            progress(drain)
        before = drain
        if not drain.draining:
            raise Refused(
                f"the drain of replica set {name} was undone meanwhile",
                found=f"partitions of {', '.join(cube.cube for cube in drain.cubes)}",
                action="repeat it if it is still wanted",
            )
        if all(cube.refused for cube in drain.cubes):
            raise Refused(
                f"replica set {name} still has partitions",
                found="; ".join(f"{cube.cube}: {cube.refused}" for cube in drain.cubes),
                action="do what it says; the leader goes on by itself",
            )
        if time.monotonic() > deadline_s:
            raise NotYet(
                f"replica set {name} still has partitions after {wait_s:g} s",
                found="; ".join(f"{cube.cube}: {_left(cube)}" for cube in drain.cubes),
                action="the leader goes on by itself; `rtolap receivers drain --undo` ends it",
            )
        time.sleep(_LOOK_S)
        drain = client.drain_progress(name)
    return drain


def _left(cube: DrainedCube) -> str:
    return cube.refused or ", ".join(cube.waits) or f"partitions {list(cube.partitions)} move"


def _with_moves(assignment: dict[str, tuple[int, ...]], moves: Sequence[str]) -> dict[str, tuple[int, ...]]:
    owner = {partition: name for name, held in assignment.items() for partition in held}
    for text in moves:
        partition, equals, name = text.partition("=")
        if not (equals and name and partition.isdigit() and int(partition) in owner):
            raise DefinitionError(
                "not a move of this cube", expected=f"P=REPLICA_SET with P of {sorted(owner)}", found=text
            )
        owner[int(partition)] = name
    return {
        name: tuple(p for p, its in sorted(owner.items()) if its == name)
        for name in sorted({*owner.values()})
    }


@dataclass(frozen=True)
class Requeued:
    """Segments of a window of event time after a requeue.

    Attributes:
        queued: those that were READY, and wait to be built again.
        waiting: those that an earlier call has queued.
        left: those that were READY and are left as they are, with the reason.
    """

    queued: tuple[str, ...]
    waiting: tuple[str, ...]
    left: dict[str, Refused]


def requeue_window(client: CoordinatorClient, cube: str, start_ms: int, end_ms: int) -> Requeued:
    """Queue the READY segments that overlap `[start_ms, end_ms)`; others are left as they are.

    A repetition queues nothing twice. Refused of one segment, which a late delta has closed or a purge has
    taken meanwhile, does not hold up the others.
    """
    overlapping = client.segments(cube, start_ms=start_ms, end_ms=end_ms)
    waiting = tuple(one.segment for one in overlapping if one.state == REMOTE_PERSISTED and one.version)
    queued: list[str] = []
    left: dict[str, Refused] = {}
    for name in (one.segment for one in overlapping if one.state == READY):
        try:
            client.requeue(cube, name)
        except Refused as error:
            left[name] = error
        else:
            queued.append(name)
    return Requeued(tuple(queued), waiting, left)


def planned_batch(
    client: CoordinatorClient,
    cube: str,
    batch: str,
    start_ms: int,
    end_ms: int,
    source: Definition,
    *,
    wait_s: float = HEARD_WITHIN_S,
) -> BatchPlanMessage:
    """Plan a batch, and wait until the leader knows of which segments receivers hold events.

    Raises NotYet, which names who was not heard, after `wait_s`; at once what else the coordinator refuses.
    """
    return _when_heard(lambda: client.plan_batch(cube, batch, start_ms, end_ms, source), wait_s)


def altered_cube(
    client: CoordinatorClient, cube: str, request: AlterRequest, *, wait_s: float = HEARD_WITHIN_S
) -> Alteration:
    """Plan or make a change of a cube, and wait as `planned_batch` does."""
    return _when_heard(lambda: client.alter_cube(cube, request), wait_s)


def _when_heard(ask: Callable[[], T], wait_s: float) -> T:
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return ask()
        except NotYet:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_LOOK_S)


def applied_batch(client: CoordinatorClient, cube: str, batch: str) -> BatchProgress:
    """Hand over all segments of a staged batch.

    Raises NotYet before it is staged, and Refused where a segment has changed since the plan: those before it
    are handed over then.
    """
    progress = client.apply_batch(cube, batch)
    while progress.left:
        progress = client.apply_batch(cube, batch)
    return progress
