"""Receivers and replica sets as people see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from rtolap.base.addresses import host_port
from rtolap.base.errors import Refused
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.coordinator.placement.rules import PlacementRules
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.members.places import SharedPlace
from rtolap.metadata.records import ReplicaSetRecord
from rtolap.metadata.updates import read_each
from rtolap.protocols.coordinator import messages as wire

SetStanding = tuple[str, str | None]  # state, problem


class Members:
    """Answers who belongs to the cluster, and changes replica sets.

    Attributes:
        standing: returns the state of a replica set at the leader's last look, and what is wrong with it.
        followed: the same metadata over a `CachedStore`. Health looks at the control of every cube; those
            that have not changed are not read again.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        heartbeats: Heartbeats,
        followed: ClusterMetadata,
        placement: PlacementRules,
        standing: Callable[[str], SetStanding],
    ) -> None:
        self._metadata = metadata
        self._standing = standing
        self._placement = placement
        self._heartbeats = heartbeats
        self._followed = followed

    def receivers(self) -> list[wire.ReceiverInfo]:
        records = self._metadata.receivers()
        self._heartbeats.keep_only(records)
        live = set(self._metadata.live_receivers())
        controls = read_each(self._followed.cubes(), self._followed.control).found
        heartbeats = self._heartbeats.heard()
        healths = self._heartbeats.healths(records, live, controls)
        answer = []
        for name, record in sorted(records.items()):
            health, reason = healths[name]
            heartbeat = heartbeats.get(name)
            answer.append(
                wire.ReceiverInfo(
                    receiver_id=name,
                    host=record.host,
                    port=record.port,
                    replica_set=record.replica_set,
                    machine=record.machine,
                    rack=record.rack,
                    program=record.program,
                    metrics_port=record.metrics_port,
                    health=health,
                    reason=reason,
                    is_leader=heartbeat.request.is_leader
                    if heartbeat and health in ("HEALTHY", "WARN")
                    else False,
                    last_seen_ms=heartbeat.at_ms if heartbeat else None,
                    cubes=heartbeat.request.cubes if heartbeat else {},
                )
            )
        return answer

    def metrics_targets(self) -> list[wire.MetricsTargets]:
        """Return the running coordinators, and the registered receivers whether they live or not: Prometheus
        shows which are down."""
        targets = [
            wire.MetricsTargets(targets=(urlsplit(url).netloc,), labels={"service": "coordinator"})
            for url in self._metadata.coordinators()
        ]
        for name, record in sorted(self._metadata.receivers().items()):
            if record.metrics_port:
                labels = {"service": "receiver", "receiver": name, "replica_set": record.replica_set}
                address = host_port(record.host, record.metrics_port)
                targets.append(wire.MetricsTargets(targets=(address,), labels=labels))
        return targets

    def replica_sets(self) -> list[wire.ReplicaSetInfo]:
        shared = self._placement.shared()
        return [
            self._info(record, shared.get(name, ()))
            for name, record in sorted(self._metadata.replica_sets().items())
        ]

    def replica_set(self, name: str) -> wire.ReplicaSetInfo:
        return self._info(self._metadata.replica_set(name), self._placement.shared().get(name, ()))

    def _info(self, record: ReplicaSetRecord, shared: Iterable[SharedPlace]) -> wire.ReplicaSetInfo:
        state, problem = self._standing(record.name)
        return wire.ReplicaSetInfo(
            name=record.name,
            receivers=record.receivers,
            leader=self._metadata.replica_set_leader(record.name),
            draining=record.draining,
            missing_since_ms=record.missing_since_ms,
            state=state,
            problem=problem,
            shared_places=tuple(map(str, shared)),
        )

    def put_replica_set(self, name: str, receivers: Sequence[str]) -> wire.ReplicaSetInfo:
        """Set the receivers that form the set. A set that still has partitions must keep a receiver, and a
        living one if it has one."""
        members = tuple(sorted(set(receivers)))
        holding = [
            cube for cube in self._metadata.cubes() if self._metadata.control(cube).has_partitions_in(name)
        ]
        if not members and holding:
            raise Refused(
                f"replica set {name} cannot be emptied", found=f"partitions of {', '.join(holding)}"
            )
        before = self._metadata.replica_sets().get(name)
        live = set(self._metadata.live_receivers())
        living = live & set(before.receivers if before is not None else ())
        if holding and living and not live & set(members):
            raise Refused(
                f"replica set {name} would be without a living receiver",
                expected=f"one of {', '.join(sorted(living))} among its receivers, or another living one",
                found=f"{', '.join(members)}, and partitions of {', '.join(holding)}",
                action=f"start another one first, or `rtolap receivers drain {name}`",
            )
        elsewhere = {
            receiver: other.name
            for other in self._metadata.replica_sets().values()
            if other.name != name
            for receiver in other.receivers
            if receiver in members
        }
        if elsewhere:
            raise Refused(f"a receiver is in one replica set only, but {elsewhere} are in others")
        self._placement.check_members(name, members)
        self._metadata.put_replica_set(name, members)
        return self.replica_set(name)
