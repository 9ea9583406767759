"""Moves of a cube's partitions between replica sets: planned, approved by a person, begun, and moved back.

    PlanMoveOperator ─▶ Approve ─▶ MovePartitionsOperator ─▶ MoveStandsSensor
                        Approve ─▶ MoveBackOperator ─▶ MoveStandsSensor

Each step may be repeated: a move that was begun by an earlier try is found and goes on. One that was planned
for an assignment which no longer stands is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rtolap.airflow.operators.approved import ApprovedCubeOperator
from rtolap.airflow.operators.coordinator import CubeOperator
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import LevelledBy, Reassignment, ReassignRequest
from rtolap.protocols.coordinator.operations import reassignment_plan

LINES_MAX = 50  # of moves in the form; the result has all


class PlanMoveOperator(CubeOperator):
    """Plans moves that level the cube over `over`, or over its replica sets, by the number of partitions or
    by load, and changes nothing. The task is skipped when nothing has to move. `over`: names, or their JSON.

    Result: the plan (`Reassignment` as JSON), and `text` for the person who approves it.
    """

    template_fields: Sequence[str] = ("cube", "by", "over")

    def __init__(self, *, by: str = "load", over: Sequence[str] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.by = by
        self.over = over

    def call(self, coordinator: CoordinatorClient) -> dict[str, Any]:
        if not coordinator.cube(self.cube).enabled:
            raise AirflowFailException(
                f"cube {self.cube} is disabled: nobody would warm up for a move. Enable it first, or move "
                "its partitions by `rtolap receivers rebalance`"
            )
        over = json.loads(self.over) if isinstance(self.over, str) else self.over
        plan = reassignment_plan(coordinator, self.cube, over=over or None, moves=None, by=_by(self.by))
        if not plan.moves:
            raise AirflowSkipException(f"nothing of {self.cube} has to move")
        return {**plan.model_dump(mode="json"), "text": move_text(plan)}


class MovePartitionsOperator(ApprovedCubeOperator):
    """Begins the approved move: with warm-up, unless nobody answers for what moves, or `at_once`.

    `planned` is the result of the plan's task, `answer` that of Airflow's approval; without an approval,
    nothing moves. `at_once`: a flag, or its text. Result: the epoch of the assignment that is to stand, the
    argument of a `MoveStandsSensor`.
    """

    template_fields: Sequence[str] = ("cube", "planned", "answer", "at_once")

    def __init__(self, *, at_once: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.at_once = at_once

    def call(self, coordinator: CoordinatorClient) -> int:
        return self.begin(coordinator, self.planned["after"], int(self.planned["epoch"]))

    def begin(
        self, coordinator: CoordinatorClient, assignment: Mapping[str, Sequence[int]], epoch: int
    ) -> int:
        warm_up = False if str(self.at_once).lower() == "true" else None
        wanted = ReassignRequest.model_validate(
            {"assignment": assignment, "epoch": epoch, "warm_up": warm_up}
        )
        begun = coordinator.reassign(self.cube, wanted)
        if begun.planned_epoch is None:
            how = "has changed at once" if begun.applied else "stands since an earlier try"
            self.log.info("%s: the assignment %s", self.cube, how)
            return begun.epoch
        self.log.info("%s warms up for assignment %d", self.cube, begun.planned_epoch)
        return begun.planned_epoch


class MoveBackOperator(MovePartitionsOperator):
    """Begins to move back what `MovePartitionsOperator` has moved, if the assignment of `epoch` still stands.
    `epoch` is the result of its `MoveStandsSensor`."""

    template_fields: Sequence[str] = ("cube", "planned", "answer", "at_once", "epoch")

    def __init__(self, *, epoch: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epoch = epoch

    def call(self, coordinator: CoordinatorClient) -> int:
        return self.begin(coordinator, self.planned["before"], int(self.epoch))


def _by(text: str) -> LevelledBy:
    if text == "load":
        return "load"
    if text == "count":
        return "count"
    raise AirflowFailException(f"a plan is by `load` or by `count`, not by {text!r}")


def move_text(plan: Reassignment) -> str:
    """Return what the form shows: which partitions move, how much is read again, and the loads."""
    lines = [
        f"- partition {move.partition}: {move.source} → {move.target}, "
        f"{move.log_end - move.read_from} records are read again"
        for move in plan.moves[:LINES_MAX]
    ]
    if len(plan.moves) > LINES_MAX:
        lines.append(f"- and {len(plan.moves) - LINES_MAX} partitions more")
    if plan.load is not None:
        lines += [
            f"- {before.replica_set} carries {before.load_percent} % of the load of all cubes, then "
            f"{after.load_percent} %"
            for before, after in zip(plan.load.before, plan.load.after, strict=True)
        ]
        if plan.load.unreported:
            lines.append(f"- no loads are reported of partitions {list(plan.load.unreported)}")
    lines.append("- the old owners answer until the new ones can; meanwhile both hold the cube")
    return "\n".join(lines)
