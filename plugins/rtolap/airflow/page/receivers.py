"""Receivers with their partitions, and moves of partitions that run."""

from __future__ import annotations

from rtolap.airflow.page.messages import Moving, OwnedPartition, Receiver, Receivers
from rtolap.base.addresses import host_port
from rtolap.base.decoding import copied
from rtolap.protocols.coordinator.messages import ClusterInfo, ReceiverInfo


def receivers_of(cluster: ClusterInfo, *, now_ms: int) -> Receivers:
    """Return receivers by replica set and name, and the moves that warm up."""
    draining = {each.name for each in cluster.replica_sets if each.draining}
    ordered = sorted(cluster.receivers, key=lambda each: (each.replica_set, each.receiver_id))
    moves = [
        Moving(
            cube=cube.name,
            before=dict(cube.assignment),
            after=dict(cube.next_assignment),
            waits=cube.move_waits,
        )
        for cube in cluster.cubes
        if cube.next_epoch is not None
    ]
    return Receivers(
        now_ms=now_ms,
        receivers=tuple(_receiver(each, each.replica_set in draining) for each in ordered),
        moves=tuple(sorted(moves, key=lambda each: each.cube)),
    )


def _receiver(one: ReceiverInfo, draining: bool) -> Receiver:
    return Receiver(
        name=one.receiver_id,
        replica_set=one.replica_set,
        address=host_port(one.host, one.port),
        health=one.health,
        reason=one.reason,
        leads=one.is_leader,
        draining=draining,
        seen_ms=one.last_seen_ms,
        cubes={name: report.state for name, report in sorted(one.cubes.items())},
        partitions=tuple(
            copied(OwnedPartition, report, cube=name, partition=number)
            for name, cube in sorted(one.cubes.items())
            for number, report in sorted(cube.partitions.items())
        ),
    )
