"""Refusals common to all planners, of partitions that they must move."""

from __future__ import annotations

import numpy as np

from rtolap.base.errors import ImpossiblePlan, IncompleteSnapshot, NotFound, NotYet
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, Int64s, Snapshot

_NAMED_MAX = 3


def refuse_unmovable(placement: Placement, partitions: Int64s, goal: str) -> None:
    """Raises NotYet where one is being moved already, IncompleteSnapshot where its size is not known, and
    ImpossiblePlan where nobody leads it, so that nothing can be copied."""
    fixed = partitions[placement.fixed[partitions]]
    if fixed.size:
        raise NotYet(
            f"{goal}: partitions are being moved already",
            found=partition_names(placement.snapshot, fixed),
            action="wait for the reassignments, or cancel them",
        )
    lost = partitions[~placement.copied[partitions]]
    if lost.size:
        raise ImpossiblePlan(
            f"{goal}: partitions have no leader to copy from",
            found=partition_names(placement.snapshot, lost),
            action="bring a broker that holds them back",
        )
    unknown = partitions[placement.partition_bytes[partitions] == UNKNOWN]
    if unknown.size:
        raise IncompleteSnapshot(
            f"{goal}: sizes are not known",
            found=partition_names(placement.snapshot, unknown),
            action="take a snapshot whose brokers describe their log directories",
        )


def partition_names(snapshot: Snapshot, partitions: Int64s) -> str:
    named = [
        f"{snapshot.topics.names[snapshot.partitions.topics[row]]}-{snapshot.partitions.numbers[row]}"
        for row in np.unique(partitions)[:_NAMED_MAX]
    ]
    rest = np.unique(partitions).size - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def broker_rows(snapshot: Snapshot, ids: list[int]) -> Flags:
    """Tell by broker whether it is one of these. Raises NotFound for one that the snapshot does not know."""
    unknown = sorted(set(ids) - set(snapshot.brokers.ids.tolist()))
    if unknown or not ids:
        raise NotFound(
            f"the snapshot of {snapshot.cluster_id} has no such broker",
            expected=f"one of {snapshot.brokers.ids.tolist()}",
            found=unknown,
        )
    return np.isin(snapshot.brokers.ids, ids)


def by_size(placement: Placement, positions: Int64s) -> Int64s:
    """The largest first; equal ones in the order of the snapshot."""
    return positions[np.argsort(-placement.partition_bytes[positions // placement.slots], kind="stable")]
