"""The audit: compares a registry with snapshots of its clusters. A pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rtolap.base.errors import Refused
from rtolap.fleet.isolation.capacity import reserve_findings, role_findings, unknown_disks
from rtolap.fleet.isolation.clients import DeclaredClient, client_findings
from rtolap.fleet.isolation.findings import SEVERITIES, Audit, Finding, TopicUsers
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.isolation.quotas import quota_differences, quota_findings
from rtolap.fleet.isolation.racks import rack_findings
from rtolap.fleet.isolation.topic_users import CollectedUsers
from rtolap.fleet.isolation.topics import (
    factor_findings,
    min_in_sync_in_force,
    misplaced_topics,
    owner_findings,
    placement_findings,
)
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.fleet.snapshot.rates import FORBIDDEN_WITHOUT_RATES
from rtolap.model.fleet import FleetCluster, KafkaFleet

QUOTAS_FACT = "client quotas"


def audit(
    fleet: KafkaFleet,
    snapshots: Mapping[str, FleetSnapshot],
    clients: Sequence[DeclaredClient] = (),
    users: Mapping[str, CollectedUsers] | None = None,
) -> Audit:
    """Audit the clusters. `snapshots` go by the fleet's names of clusters, and any may be missing. `clients`
    are our own, which need no snapshot. `users` are those of the misplaced topics of each cluster that was
    asked.

    Raises Refused where a snapshot is another cluster's than its name says.
    """
    for name, snapshot in snapshots.items():
        check_cluster_id(name, fleet.cluster(name), snapshot)
    topics_of = {name: frozenset(snapshot.topics.names) for name, snapshot in snapshots.items()}
    findings: list[Finding] = []
    unchecked: list[str] = []
    for name in fleet.clusters:
        found = list(client_findings(fleet, name, clients))
        if name in snapshots:
            collected = (users or {}).get(name)
            misplaced = misplaced_topics(fleet, name, topics_of[name])
            users_of = {topic: _users(fleet, name, topic, clients, collected) for topic in misplaced}
            found += [
                *owner_findings(fleet, name, topics_of, users_of),
                *_of_cluster(name, fleet, snapshots[name]),
            ]
            unchecked += [*_unchecked(name, snapshots[name]), *_unchecked_users(name, misplaced, collected)]
        else:
            unchecked.append(f"{name}: no snapshot of it")
        found.sort(key=lambda each: (SEVERITIES.index(each.severity), each.kind, each.subject))
        findings += (msgspec.structs.replace(each, cluster=name) for each in found)
    return Audit(tuple(findings), tuple(unchecked))


def check_cluster_id(name: str, cluster: FleetCluster, snapshot: FleetSnapshot) -> None:
    if cluster.cluster_id is not None and cluster.cluster_id != snapshot.cluster_id:
        raise Refused(
            f"the snapshot is not of cluster {name}", expected=cluster.cluster_id, found=snapshot.cluster_id
        )


def _of_cluster(name: str, fleet: KafkaFleet, snapshot: FleetSnapshot) -> list[Finding]:
    cluster = fleet.clusters[name]
    placement = placement_rules(cluster, snapshot)
    found = [
        *role_findings(cluster, snapshot),
        *placement_findings(name, snapshot, placement),
        *factor_findings(snapshot, placement),
        *rack_findings(snapshot, placement, min_in_sync_in_force(snapshot, placement)),
        *reserve_findings(cluster, snapshot),
    ]
    if not _lacks_quotas(snapshot):
        found += quota_findings(quota_differences(cluster, snapshot.quotas))
    return found


def _users(
    fleet: KafkaFleet,
    name: str,
    topic: str,
    clients: Sequence[DeclaredClient],
    collected: CollectedUsers | None,
) -> TopicUsers:
    reported = TopicUsers() if collected is None else collected.users.get(topic, TopicUsers())
    here = fleet.kafka_cluster(name)
    declared = [
        f"{client.what} {client.does}"
        for client in clients
        if client.topic == topic and client.kafka_cluster == here
    ]
    return msgspec.structs.replace(reported, declared=tuple(declared))


def _unchecked_users(name: str, misplaced: Sequence[str], collected: CollectedUsers | None) -> list[str]:
    if not misplaced:
        return []
    whose = f"{name}: who uses topics of other clusters"
    if collected is None:
        return [f"{whose} (a recorded snapshot does not tell)"]
    return [f"{whose}: {missing}" for missing in collected.missing]


def _lacks_quotas(snapshot: FleetSnapshot) -> bool:
    return any(fact.fact == QUOTAS_FACT for fact in snapshot.missing)


def _unchecked(name: str, snapshot: FleetSnapshot) -> list[str]:
    # an audit looks at no rates: that they are missing leaves nothing unchecked
    needed = (fact for fact in snapshot.missing if fact.forbids != FORBIDDEN_WITHOUT_RATES)
    missing = [f"{name}: {fact.fact} ({fact.reason})" for fact in needed]
    if disks := unknown_disks(snapshot):
        missing.append(f"{name}: how full {disks} disks are, which their brokers do not say")
    return missing
