"""Moving partitions of a running cube between replica sets. Why it is done so: docs/decisions/0006.

  1. plan        pure (`assigners.rebalance`, or `balance.balancing` by load), or as the caller says;
                 validated as every plan is
  2. look        who is given partitions lives, and Kafka still has what will be read again
  3. commit      the new assignment, and the next epoch, in one version-checked write

A crash before 3 leaves the old assignment; after it, the new one, and a repetition finds nothing to move.
There is nothing to roll back and no receiver is called: each follows the record when it sees it. The old
owner forgets the partition, events, position and all, in one swap; the new one begins at `replay_from` and
leaves out what history covers. Until it has caught up with what was answered before, queries wait for it:
answers of two epochs are never put together (`protocols.receiver.messages.HistorySnapshot.assignment_epoch`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rtolap.base.errors import NotYet, Refused
from rtolap.base.ids import bound, note
from rtolap.coordinator.assigners import Plan, ReplicaSetLoad, gaining, rebalance, validate_plan
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.balance.recommendation import Recommendation, Recommendations
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, NextAssignment, ReplicaSetRecord, move_id
from rtolap.metadata.store import Operation
from rtolap.protocols.coordinator import messages as wire

log = logging.getLogger(__name__)


class MoveCause(msgspec.Struct, frozen=True):
    """Why the leader moves partitions by itself.

    Attributes:
        relieves: the replica set that they move off.
        reason: in words.
        at_once: nobody of it answers, so that the assignment changes before the new owners are warm.
        stands: whether the cause still stands, by the record of that replica set.
    """

    relieves: str
    reason: str
    at_once: bool
    stands: Callable[[ReplicaSetRecord], bool]


class Reassignments:
    def __init__(
        self,
        metadata: ClusterMetadata,
        topics: TopicsOf,
        recommendations: Recommendations,
        placement: PlacementRules,
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._recommendations = recommendations
        self._placement = placement

    def reassign(
        self, cube: str, request: wire.ReassignRequest, cause: MoveCause | None = None
    ) -> wire.Reassignment:
        """Reassign a cube's partitions. Raises Refused naming what stands in the way; then, and for a dry
        run, nothing changes.

        `cause`: of the leader's own moves, noted with the assignment. Raises NotYet where it stands no more.
        """
        control = self._metadata.control(cube)
        before = control.assignment
        if control.ended:
            raise Refused(
                f"revision {cube} has ended: it accepts no event any more, and nobody reads for it",
                expected="a cube or revision that is read",
                action="reassign the newest revision",
            )
        if not before:
            raise Refused(f"cube {cube} has no assignment yet", action="enable it first")
        partitions = sorted({p for assigned in before.values() for p in assigned})
        by_load = self._by_load(cube, control, request)
        after = by_load.plan if by_load else self._plan(cube, control, partitions, request)
        gain = gaining(before, after)
        live = self._metadata.living_members()
        if cause is not None:  # others may be without a living receiver, too: they keep what they have
            live |= {name: ("its own",) for name, owned in before.items() if owned and name not in gain}
        validate_plan(after, partitions, live)
        self._metadata.may_take_partitions(gain)
        self._placement.check(gain)
        moves = self._moves(cube, before, after, by_load.partition_percent if by_load else {})
        answer = wire.Reassignment(
            cube=cube,
            epoch=control.assignment_epoch,
            before=before,
            after=after,
            moves=moves,
            applied=False,
            load=by_load.load if by_load else None,
        )
        if request.dry_run or not moves:
            return answer
        warm_up = self._warms_up(control, moves, request)
        if control.next is not None and warm_up and control.next.assignment == after:
            return answer.model_copy(update={"planned_epoch": control.next.epoch})  # a repetition
        self._may_move(cube, control, request)
        self._still_in_kafka(cube, before, after)
        if warm_up:
            planned = self._plan_next(cube, control, after, cause)
            _say(cube, "warms up for", after, planned)
            return answer.model_copy(update={"planned_epoch": planned})
        epoch = self._commit(cube, control, after, cause)
        _say(cube, "moves at once to", after, epoch)
        return answer.model_copy(update={"epoch": epoch, "applied": True})

    def undo(self, cube: str) -> wire.Reassignment:
        """Move back to the assignment before the last move that went unnoticed, in the same way.

        Raises Refused where there is none, where a move runs, and what `reassign` refuses.
        """
        control = self._metadata.control(cube)
        if not control.moved_from:
            raise Refused(
                f"no move of cube {cube} can be undone",
                expected="a move with warm-up that stands",
                found=f"assignment {control.assignment_epoch}",
                action="`rtolap receivers rebalance` moves partitions",
            )
        wanted = wire.ReassignRequest(assignment=control.moved_from, epoch=control.assignment_epoch)
        return self.reassign(cube, wanted)

    def _warms_up(
        self, control: CubeControl, moves: Sequence[wire.Move], request: wire.ReassignRequest
    ) -> bool:
        """Return whether new owners warm up first: as requested, else where somebody answers meanwhile."""
        if request.warm_up is not None:
            return request.warm_up
        live = self._metadata.living_members()
        return control.enabled and any(live.get(move.source) for move in moves)

    def _plan(
        self, cube: str, control: CubeControl, partitions: Sequence[int], request: wire.ReassignRequest
    ) -> Plan:
        if request.assignment is not None:
            return {name: tuple(sorted(owned)) for name, owned in request.assignment.items() if owned}
        names = self._open_sets(cube, request)
        tasks_max = self._metadata.cube(cube).consumer_tasks_max
        loads = self._loads(cube, names)
        return rebalance(
            control.assignment, partitions, max(tasks_max, len(request.replica_sets or ())), loads
        )

    def _by_load(
        self, cube: str, control: CubeControl, request: wire.ReassignRequest
    ) -> Recommendation | None:
        """Return the plan by load; None where another one is wanted."""
        if request.assignment is not None or request.by != "load":
            return None
        open_sets = self._open_sets(cube, request)
        return self._recommendations.recommend(
            cube, control, open_sets, whole=request.replica_sets is not None
        )

    def _open_sets(self, cube: str, request: wire.ReassignRequest) -> list[str]:
        """Return the replica sets that a level plan may use. Raises Refused where there is none."""
        live, drained = self._metadata.living_members(), self._metadata.drained()
        unknown = sorted(set(request.replica_sets or ()) - set(live))
        if unknown:
            raise Refused("no such replica set", expected=sorted(live), found=unknown)
        names = [n for n in request.replica_sets or sorted(live) if live[n] and n not in drained]
        refused = self._placement.refused(names)
        if names and refused.issuperset(names):
            self._placement.check(refused)
        names = [name for name in names if name not in refused]
        if not names:
            raise Refused(
                f"cube {cube} cannot be reassigned",
                expected="a replica set with a live receiver that is not drained",
                action="start a receiver first",
            )
        return names

    def _loads(self, cube: str, names: Sequence[str]) -> list[ReplicaSetLoad]:
        others = [control.assignment for control in self._metadata.other_controls(cube).values()]
        racks = self._placement.racks()
        return [
            ReplicaSetLoad(
                name,
                sum(bool(owned.get(name)) for owned in others),
                sum(len(owned.get(name, ())) for owned in others),
                racks.get(name, ""),
            )
            for name in dict.fromkeys(names)
        ]

    def _moves(
        self, cube: str, before: Plan, after: Plan, percent: Mapping[int, float]
    ) -> tuple[wire.Move, ...]:
        owner = {p: name for name, owned in before.items() for p in owned}
        target = {p: name for name, owned in after.items() for p in owned}
        moving = [p for p in sorted(target) if target[p] != owner[p]]
        if not moving:
            return ()
        replay_from = self._metadata.replay_from(cube)
        table = self._metadata.schema(cube).table
        ends = self._topics(table.kafka_cluster).offsets(table.topic, "latest")
        return tuple(
            wire.Move(
                partition=p,
                source=owner[p],
                target=target[p],
                read_from=replay_from[p],
                log_end=ends.get(p, replay_from[p]),
                load_percent=percent.get(p),
            )
            for p in moving
        )

    def _may_move(self, cube: str, control: CubeControl, request: wire.ReassignRequest) -> None:
        if control.next is not None:
            raise Refused(
                f"another move of cube {cube} runs",
                expected="one move of a cube at a time",
                found=f"epoch {control.next.epoch}, to {control.next.assignment}",
                action="wait until it has ended, or cancel it by `rtolap receivers cancel-move`",
            )
        if control.paused:
            raise Refused(
                f"cube {cube} is paused",
                expected="a cube that consumes: queries would wait for the new owner until it does",
                action="resume it first",
            )
        if request.epoch is not None and request.epoch != control.assignment_epoch:
            raise Refused(
                f"the assignment of cube {cube} has changed since it was looked at",
                expected=f"epoch {request.epoch}",
                found=control.assignment_epoch,
                action="look at the plan again",
            )

    def _still_in_kafka(self, cube: str, before: Plan, after: Plan) -> None:
        """Check that Kafka holds what the new owners read from the beginning, and what the old ones keep of
        mixed tables."""
        table = self._metadata.schema(cube).table
        topic = table.topic
        starts = self._topics(table.kafka_cluster).offsets(topic, "earliest")
        replay_from = self._metadata.replay_from(cube)
        changed = [name for name in {*before, *after} if before.get(name) != after.get(name)]
        read_again = {p for name in changed for p in (*before.get(name, ()), *after.get(name, ()))}
        gone = {p: starts[p] for p in sorted(read_again) if starts.get(p, 0) > replay_from[p]}
        if gone:
            raise Refused(
                f"partitions {sorted(gone)} of cube {cube} cannot be read again",
                expected=f"offsets from {[replay_from[p] for p in gone]} on",
                found=f"topic {topic} begins at {list(gone.values())}",
                action="close and build what is open first, so that history covers it; "
                "then raise the topic's retention",
            )

    def _commit(self, cube: str, seen: CubeControl, after: Plan, cause: MoveCause | None) -> int:
        epoch = seen.epoch_after
        because = cause.reason if cause is not None else ""

        def change(control: CubeControl) -> CubeControl:
            if control.assignment_epoch == epoch and control.assignment == after:
                return control  # this very write, whose answer was lost
            if control.epoch_after != epoch:
                raise NotYet(
                    f"the assignment of cube {cube} is being changed by somebody else",
                    expected=f"epoch {seen.assignment_epoch}",
                    found=control.assignment_epoch,
                    action="ask again",
                )
            return msgspec.structs.replace(
                control, assignment=after, assignment_epoch=epoch, assigned_because=because
            )

        return self._metadata.update_control(
            cube, change, requires=self._may_take(seen, after, cause)
        ).assignment_epoch

    def _plan_next(self, cube: str, seen: CubeControl, after: Plan, cause: MoveCause | None) -> int:
        epoch = seen.epoch_after
        planned = NextAssignment(
            epoch,
            after,
            self._metadata.clock.now_ms(),
            relieves=cause.relieves if cause is not None else "",
            reason=cause.reason if cause is not None else "",
        )

        def change(control: CubeControl) -> CubeControl:
            if control.next is not None and (control.next.epoch, control.next.assignment) == (epoch, after):
                return control  # this very write, whose answer was lost
            if control.epoch_after != epoch:
                raise NotYet(
                    f"the assignment of cube {cube} is being changed by somebody else",
                    expected=f"epoch {seen.assignment_epoch} and no plan since",
                    found=control.epoch_after - 1,
                    action="ask again",
                )
            return msgspec.structs.replace(control, next=planned, planned_epoch=epoch)

        self._metadata.update_control(cube, change, requires=self._may_take(seen, after, cause))
        return epoch

    def _may_take(
        self, seen: CubeControl, after: Plan, cause: MoveCause | None
    ) -> Callable[[], Sequence[Operation]]:
        gain = gaining(seen.assignment, after)

        def required() -> Sequence[Operation]:
            taking = self._metadata.may_take_partitions(gain)
            if cause is None:
                return taking
            return (*taking, *self._metadata.still(cause.relieves, cause.stands))

        return required


def _say(cube: str, what: str, after: Plan, epoch: int) -> None:
    """Write the line under the id of the move, which the rest of the request has from now on."""
    move = move_id(cube, epoch)
    note(move=move)
    with bound(cube=cube, move=move):  # the leader's own moves belong to no request
        log.info("cube %s: %s %s, epoch %d", cube, what, after, epoch)
