"""Checks for what needs a human: made now and then by the leader, shown as the cube's `problem`."""

from __future__ import annotations

import logging
import threading

from rtolap.base.errors import NotFound, RtolapError
from rtolap.coordinator.assignment import Assignments, Topics, TopicsOf, recreated
from rtolap.metadata.cubes import ClusterMetadata

log = logging.getLogger(__name__)


class Checks:
    """Finds added partitions, a missing topic, offsets that Kafka no longer holds, empty replica sets."""

    def __init__(self, metadata: ClusterMetadata, topics: TopicsOf, assignments: Assignments) -> None:
        self._metadata = metadata
        self._topics = topics
        self._assignments = assignments
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}

    def problem(self, cube: str) -> str | None:
        with self._lock:
            return self._problems.get(cube)

    def run(self, cube: str) -> None:
        """Look at one cube. A fault becomes the cube's problem, never an exception."""
        try:
            problems = self._look(cube)
        except RtolapError as error:
            problems = [str(error)]
        text = "; ".join(problems)
        with self._lock:
            if text and self._problems.get(cube) != text:
                log.warning("cube %s: %s", cube, text)
            if text:
                self._problems[cube] = text
            else:
                self._problems.pop(cube, None)

    def keep_only(self, cubes: tuple[str, ...]) -> None:
        with self._lock:
            self._problems = {cube: text for cube, text in self._problems.items() if cube in cubes}

    def _look(self, cube: str) -> list[str]:
        control = self._metadata.control(cube)
        if not control.enabled or control.ended:
            return []
        table = self._metadata.schema(cube).table
        topic = table.topic
        topics = self._topics(table.kafka_cluster)
        try:
            topic_id = topics.topic_id(topic)
            partitions = topics.partitions(topic)
        except NotFound:
            return [
                f"topic {topic} is missing: receivers wait; one that is created again is another topic, "
                "which needs another cube"
            ]
        if (another := recreated(topic, control, topic_id)) is not None:
            return [str(another)]
        control = self._assignments.extend(cube, partitions, topic_id)
        problems = []
        gone = sorted(p for owned in control.assignment.values() for p in owned if p not in partitions)
        if gone:
            problems.append(f"topic {topic} has lost partitions {gone}: was it deleted and recreated?")
        problems += self._replay_problems(cube, topic, topics)
        replica_sets = self._metadata.replica_sets()
        problems += [
            f"replica set {name} has no receiver for partitions {list(owned)}"
            for name, owned in sorted(control.assignment.items())
            if owned and (name not in replica_sets or not replica_sets[name].receivers)
        ]
        return problems

    def _replay_problems(self, cube: str, topic: str, topics: Topics) -> list[str]:
        replay_from = self._metadata.replay_from(cube)
        starts, ends = topics.offsets(topic, "earliest"), topics.offsets(topic, "latest")
        problems = []
        for partition, offset in sorted(replay_from.items()):
            if starts.get(partition, 0) > offset:
                problems.append(
                    f"{topic}/{partition} begins at offset {starts[partition]}, but a replay needs {offset}: "
                    "raise the topic's retention; a receiver that is lost now loses events"
                )
            if partition in ends and ends[partition] < offset:
                problems.append(
                    f"{topic}/{partition} ends at offset {ends[partition]}, before {offset} that was read: "
                    "was the topic deleted and recreated?"
                )
        return problems
