"""Applies declared client quotas, and looks afterwards whether they are in force.

    1  commit an entry that says who sets what, and why
    2  send the alterations, in one request
    3  note on the entry that they were taken
    4  read all quotas again: what still differs is returned

Alterations may be sent twice. An entry without the note of 3 is of a process that ended, or was refused, in
2.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused
from rtolap.fleet.isolation.quotas import QuotaDifference, quota_alterations, quota_differences
from rtolap.fleet.snapshot.model import Quota
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata import codec, paths
from rtolap.metadata.store import Create, MetadataStore, Put
from rtolap.metadata.updates import retrying
from rtolap.model.fleet import FleetCluster


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log of quotas. taken: Kafka took them."""

    operation_id: str
    at_ms: int
    by: str
    reason: str
    differences: tuple[QuotaDifference, ...]
    taken: bool = False


def quota_changes(store: MetadataStore, cluster_id: str) -> tuple[QuotaChange, ...]:
    """Return every change of a cluster's quotas, the oldest first."""
    folder = paths.fleet_quota_changes(cluster_id)
    nodes = ((name, store.get(f"{folder}/{name}")) for name in store.children(folder))
    found = (codec.decode(node.data, QuotaChange, f"{folder}/{name}") for name, node in nodes if node)
    return tuple(sorted(found, key=lambda change: (change.at_ms, change.operation_id)))


def live_differences(
    cluster: FleetCluster, administration: FleetAdministration
) -> tuple[QuotaDifference, ...]:
    """Raises Refused where the registry means another cluster."""
    if cluster.cluster_id is not None:
        found = administration.describe_cluster().cluster_id
        if found != cluster.cluster_id:
            raise Refused("quotas of another cluster", expected=cluster.cluster_id, found=found)
    live = administration.client_quotas()
    quotas = (Quota(each.entity, key, value) for each in live for key, value in each.values.items())
    return quota_differences(cluster, quotas)


def apply_quotas(
    cluster: FleetCluster,
    differences: Collection[QuotaDifference],
    administration: FleetAdministration,
    store: MetadataStore,
    clock: Clock,
    *,
    operation_id: str,
    by: str,
    reason: str,
) -> tuple[QuotaDifference, ...]:
    """Return what differs afterwards; what the registry leaves alone is among it."""
    alterations = quota_alterations(differences)
    if not alterations:
        return tuple(differences)
    path = paths.fleet_quota_change(administration.describe_cluster().cluster_id, operation_id)
    applied = tuple(each for each in differences if each.applies)
    change = QuotaChange(
        operation_id=operation_id, at_ms=clock.now_ms(), by=by, reason=reason, differences=applied
    )

    def record() -> None:
        if store.get(path) is None:
            store.commit([Create(path, codec.encode(change))])

    def mark() -> None:
        node = store.get(path)
        if node is not None and not codec.decode(node.data, QuotaChange, path).taken:
            store.commit([Put(path, codec.encode(msgspec.structs.replace(change, taken=True)), node.version)])

    retrying(record)
    administration.alter_client_quotas(alterations)
    retrying(mark)
    return live_differences(cluster, administration)
