"""Faults that need a person, in words, with what to do: out of the cluster's own report."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.airflow.page.messages import Problem
from rtolap.protocols.coordinator.messages import ClusterInfo, CubeStatus, QueueEntry


def problems_of(cluster: ClusterInfo, queue: tuple[QueueEntry, ...]) -> tuple[Problem, ...]:
    """Return all problems of the cluster, errors before warnings, else in the order of their names."""
    found = [
        *_of_receivers(cluster),
        *_of_replica_sets(cluster),
        *(problem for cube in cluster.cubes for problem in _of_cube(cube)),
        *_of_builds(queue),
        *_of_applications(cluster),
    ]
    return tuple(sorted(found, key=lambda each: (each.severity, each.cube, each.receiver, each.what)))


def _of_receivers(cluster: ClusterInfo) -> Iterator[Problem]:
    for receiver in cluster.receivers:
        if receiver.health != "HEALTHY":
            reason = f": {receiver.reason}" if receiver.reason else ""
            yield Problem(
                what=f"Receiver {receiver.receiver_id} is {receiver.health}{reason}",
                action="Read its log, and see that its task of rtolap_receivers runs.",
                severity="warning" if receiver.health == "WARN" else "error",
                receiver=receiver.receiver_id,
            )


def _of_replica_sets(cluster: ClusterInfo) -> Iterator[Problem]:
    living = {one.replica_set for one in cluster.receivers if one.health in ("HEALTHY", "WARN")}
    for each in cluster.replica_sets:
        held = sorted(cube.name for cube in cluster.cubes if cube.enabled and cube.assignment.get(each.name))
        if held and each.name not in living:
            yield Problem(
                what=f"Replica set {each.name} has partitions and no living receiver: {', '.join(held)}",
                action=f"Start a receiver of it, or `rtolap receivers drain {each.name}`.",
                severity="error",
                cube=held[0],
            )


def _of_cube(cube: CubeStatus) -> Iterator[Problem]:
    if cube.problem:
        yield Problem(
            what=f"Cube {cube.name}: {cube.problem}",
            action=f"`rtolap describe {cube.name}` says more.",
            severity="error",
            cube=cube.name,
        )
    if cube.catching_up:
        numbers = ", ".join(map(str, cube.catching_up))
        yield Problem(
            what=f"Cube {cube.name}: partitions {numbers} are read to the log's end before they answer",
            action="Wait; the lag says how far they are.",
            severity="warning",
            cube=cube.name,
        )
    for reason, records in sorted(cube.refused.items()):
        example = cube.refused_example.get(reason, "none kept")
        yield Problem(
            what=f"Cube {cube.name}: at least {records:,} records are in no count ({reason})",
            action=f"`rtolap dead-letters` shows them. One of them: {example}",
            severity="warning",
            cube=cube.name,
        )


def _of_builds(queue: tuple[QueueEntry, ...]) -> Iterator[Problem]:
    for entry in queue:
        if entry.build is not None and entry.build.error:
            yield Problem(
                what=f"The build of segment {entry.segment} of {entry.cube} failed: {entry.build.error}",
                action="The next run of rtolap_segment_build tries again; its task has Spark's log.",
                severity="error",
                cube=entry.cube,
            )


def _of_applications(cluster: ClusterInfo) -> Iterator[Problem]:
    for each in cluster.applications:
        if each.owner is None:
            yield Problem(
                what=f"Application {each.application} has no coordinator: its windows do not close",
                action="Another coordinator takes it over within seconds; if not, start one.",
                severity="warning",
            )
