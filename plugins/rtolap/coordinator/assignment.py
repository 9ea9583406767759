"""Assigning a cube's partitions and fixing where each begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from rtolap.base.errors import CommitConflict, NotFound, Refused
from rtolap.coordinator.assigners import (
    ASSIGNERS,
    DEFAULT_ASSIGNER,
    Plan,
    ReplicaSetLoad,
    gaining,
    validate_plan,
)
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.kafka.interfaces import TopicRecreated
from rtolap.kafka.topic_identity import CUBE_ACTION
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import CubeControl, Switched
from rtolap.metadata.updates import retried
from rtolap.model.offsets import Offsets
from rtolap.model.table import Table


class Topics(Protocol):
    """The part of `kafka.interfaces.TopicAdmin` that the coordinator needs."""

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises NotFound for an unknown topic, and Unavailable when no
        broker answers."""
        ...

    def topic_id(self, topic: str) -> str: ...

    def offsets(self, topic: str, which: str) -> Offsets: ...


TopicsOf = Callable[[str], Topics]  # of the Kafka cluster with that name; DefinitionError: there is none


def recreated(topic: str, control: CubeControl, topic_id: str) -> TopicRecreated | None:
    """Return an error if the cube's offsets are those of another topic than that of this id ("": unknown)."""
    if not control.topic_id or not topic_id or control.topic_id == topic_id:
        return None
    return TopicRecreated(topic, known=control.topic_id, found=topic_id, action=CUBE_ACTION)


def _in_topic(control: CubeControl, topic_id: str, *, enabled: bool | None = None) -> CubeControl:
    return msgspec.structs.replace(
        control,
        topic_id=control.topic_id or topic_id,
        enabled=control.enabled if enabled is None else enabled,
    )


class Assignments:
    def __init__(self, metadata: ClusterMetadata, topics: TopicsOf, placement: PlacementRules) -> None:
        self._metadata = metadata
        self._topics = topics
        self._placement = placement

    def enable(self, cube: str, assigner: str | None = None, switched: Switched | None = None) -> CubeControl:
        """Switch the cube on; the first time, assign all partitions and fix their first offsets. `switched`:
        who does, noted where it was off.

        A partition that is met later begins at offset 0, so that none of its events is missed. Raises
        Refused where no replica set has a receiver, NotFound for a missing topic; nothing is changed then.
        """
        schema = self._metadata.schema(cube)
        topics = self._topics(schema.table.kafka_cluster)
        partitions = self._partitions_to_enable(cube, schema.table)
        topic_id = topics.topic_id(schema.table.topic)
        which = "earliest" if schema.cube.start == "earliest" else "latest"
        offsets = topics.offsets(schema.table.topic, which)
        name = assigner or DEFAULT_ASSIGNER
        if name not in ASSIGNERS:
            raise Refused("no such assigner", expected=sorted(ASSIGNERS), found=name)

        @retried
        def enabled() -> CubeControl:
            control = self._metadata.control(cube)
            if found := recreated(schema.table.topic, control, topic_id):
                raise found
            if control.ended:
                grown = control
            elif control.assignment:
                grown = self._grown(control, partitions)
            else:
                plan = ASSIGNERS[name](partitions, schema.cube.consumer_tasks_max, self._loads(cube))
                self._validate(plan, partitions)
                grown = msgspec.structs.replace(
                    control,
                    assignment=plan,
                    assignment_epoch=control.epoch_after,
                    first_offsets={p: offsets[p] for p in partitions},
                )
            if not control.enabled:
                grown = msgspec.structs.replace(grown, switched=switched)
            return self._commit(cube, control, _in_topic(grown, topic_id, enabled=True))

        return enabled()

    def _partitions_to_enable(self, cube: str, table: Table) -> Sequence[int]:
        topic = table.topic
        try:
            return self._topics(table.kafka_cluster).partitions(topic)
        except NotFound as error:
            raise NotFound(
                f"cube {cube} cannot be enabled",
                expected=f"the topic {topic}",
                found="no such topic",
                action=f"create it, for one by `rtolap produce FILE --topic {topic} --partitions 4`, "
                "or create the cube without --enable",
            ) from error

    @retried
    def extend(self, cube: str, partitions: Sequence[int], topic_id: str) -> CubeControl:
        """Assign partitions that were added to the topic. Nothing is written if there are none, and nothing
        is changed where the topic is another one; a cube of an older version adopts its id."""
        control = self._metadata.control(cube)
        if control.ended or recreated("", control, topic_id):
            return control
        return self._commit(cube, control, _in_topic(self._grown(control, partitions), topic_id))

    def release(self, cube: str, cube_id: str) -> CubeControl:
        """Assign a revision that has ended to nobody, and stop a move of it. `cube_id`: of the creation that
        is meant."""

        def released(control: CubeControl) -> CubeControl:
            if control.ended:
                return control
            return msgspec.structs.replace(
                control,
                ended=True,
                assignment={},
                assignment_epoch=control.epoch_after,
                next=None,
                moved_from={},
            )

        return self._metadata.update_control(cube, released, cube_id=cube_id)

    @retried
    def assign_again(self, cube: str) -> CubeControl:
        """Assign all partitions of a revision that had ended, from where history may need them.

        Raises Refused where no replica set has a receiver: then it stays ended.
        """
        schema = self._metadata.schema(cube)
        control = self._metadata.control(cube)
        if not control.ended:
            return control
        partitions = sorted(control.first_offsets)
        assign = ASSIGNERS[DEFAULT_ASSIGNER]
        plan = assign(partitions, schema.cube.consumer_tasks_max, self._loads(cube))
        self._validate(plan, partitions)
        wanted = msgspec.structs.replace(
            control, ended=False, assignment=plan, assignment_epoch=control.epoch_after
        )
        return self._commit(cube, control, wanted)

    def _grown(self, control: CubeControl, partitions: Sequence[int]) -> CubeControl:
        """Assign new partitions to the cube's replica set with the fewest, one after the other."""
        known = {p for assigned in control.assignment.values() for p in assigned}
        fresh = sorted(set(partitions) - known)
        if not fresh:
            return control
        replica_sets = self._metadata.replica_sets()
        refused = self._placement.refused(control.assignment)
        plan = {name: list(assigned) for name, assigned in control.assignment.items()}
        open_sets = [
            name
            for name in plan
            if name in replica_sets
            and replica_sets[name].receivers
            and not replica_sets[name].draining
            and name not in refused
        ]
        if not open_sets:
            raise Refused(
                f"partitions {fresh} cannot be assigned",
                expected="a replica set of the cube that has receivers, is not drained, and stands as "
                "RTOLAP_PLACEMENT asks",
                action="start a receiver in one of them, or move partitions of the cube to another one",
            )
        for partition in fresh:
            smallest = min(open_sets, key=lambda name: (len(plan[name]), name))
            plan[smallest].append(partition)
        whole: Plan = {name: tuple(assigned) for name, assigned in plan.items()}
        self._validate(whole, known | set(fresh))
        return msgspec.structs.replace(
            control,
            assignment=whole,
            assignment_epoch=control.epoch_after,
            next=None,  # a move that runs knows nothing of the new partitions; it is planned again
            first_offsets={**dict.fromkeys(fresh, 0), **control.first_offsets},
        )

    def _commit(self, cube: str, seen: CubeControl, wanted: CubeControl) -> CubeControl:
        """Replace `seen` by `wanted`. CommitConflict if it was changed meanwhile."""

        def change(control: CubeControl) -> CubeControl:
            if control == wanted:
                return control
            if control != seen:
                raise CommitConflict(f"the control of cube {cube} has changed")
            return wanted

        gain = gaining(seen.assignment, wanted.assignment)
        return self._metadata.update_control(
            cube, change, requires=lambda: self._metadata.may_take_partitions(gain)
        )

    def _loads(self, cube: str) -> list[ReplicaSetLoad]:
        """Return the replica sets that may be given partitions, by name, with their load of other cubes.

        They have receivers, are not drained, and stand as the placement policy asks."""
        others = self._metadata.other_controls(cube).values()
        loads = []
        replica_sets, racks = self._metadata.replica_sets(), self._placement.racks()
        refused = self._placement.refused(replica_sets)
        for name, replica_set in sorted(replica_sets.items()):
            owned = [control.assignment[name] for control in others if control.assignment.get(name)]
            if replica_set.receivers and not replica_set.draining and name not in refused:
                load = ReplicaSetLoad(name, len(owned), sum(map(len, owned)), racks.get(name, ""))
                loads.append(load)
        if not loads:
            self._placement.check(refused)
            raise Refused(
                f"cube {cube} cannot be assigned",
                expected="a replica set with at least one receiver that is not drained",
                found="none",
                action="start a receiver first",
            )
        return loads

    def _validate(self, plan: Plan, partitions: Sequence[int] | set[int]) -> None:
        replica_sets = self._metadata.replica_sets()
        validate_plan(plan, partitions, {name: record.receivers for name, record in replica_sets.items()})
