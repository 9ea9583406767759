"""Refusals common to all planners, of partitions that they must move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtolap.base.errors import ImpossiblePlan, IncompleteSnapshot, NotFound, NotYet, RtolapError
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import LeftOut
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int64s

_NAMED_MAX = 3


def refuse_unmovable(placement: Placement, partitions: Int64s, goal: str) -> None:
    """Raise the first error of `unmovable`."""
    for _, error in unmovable(placement, partitions, goal):
        raise error


def unmovable(
    placement: Placement, partitions: Int64s, goal: str
) -> list[tuple[Int64s, NotYet | IncompleteSnapshot | ImpossiblePlan]]:
    """Return partitions that cannot be copied, by the reason.

    The reason is NotYet for a running move, ImpossiblePlan for a missing leader, and IncompleteSnapshot for
    an unknown size.
    """
    found: list[tuple[Int64s, NotYet | IncompleteSnapshot | ImpossiblePlan]] = []
    fixed = partitions[placement.fixed[partitions]]
    if fixed.size:
        found.append(
            (
                fixed,
                NotYet(
                    f"{goal}: partitions are being moved already",
                    found=partition_names(placement.snapshot, fixed),
                    action="wait for the reassignments, or cancel them",
                ),
            )
        )
    lost = partitions[~placement.copied[partitions]]
    if lost.size:
        found.append(
            (
                lost,
                ImpossiblePlan(
                    f"{goal}: partitions have no leader to copy from",
                    found=partition_names(placement.snapshot, lost),
                    action="bring a broker that holds them back",
                ),
            )
        )
    unknown = partitions[placement.partition_bytes[partitions] == UNKNOWN]
    if unknown.size:
        found.append(
            (
                unknown,
                IncompleteSnapshot(
                    f"{goal}: sizes are not known",
                    found=partition_names(placement.snapshot, unknown),
                    action="take a snapshot whose brokers describe their log directories",
                ),
            )
        )
    return found


def partitions_left_out(
    snapshot: FleetSnapshot, reasons: Sequence[tuple[Int64s, RtolapError]]
) -> tuple[LeftOut, ...]:
    """Return the partitions by name, each once, with its first reason."""
    named: dict[str, str] = {}
    for partitions, error in reasons:
        for partition in partitions.tolist():
            named.setdefault(partition_names(snapshot, np.array([partition])), str(error))
    return tuple(LeftOut(name, reason) for name, reason in sorted(named.items()))


def left_out_text(left_out: Sequence[LeftOut]) -> list[str]:
    """Say it among the reasons of a plan."""
    if not left_out:
        return []
    named = ", ".join(each.name for each in left_out[:_NAMED_MAX])
    rest = len(left_out) - _NAMED_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return [f"Left out, because it cannot be done: {named}{more}. The first: {left_out[0].reason}."]


def partition_names(snapshot: FleetSnapshot, partitions: Int64s) -> str:
    named = [
        f"{snapshot.topics.names[snapshot.partitions.topics[row]]}-{snapshot.partitions.numbers[row]}"
        for row in np.unique(partitions)[:_NAMED_MAX]
    ]
    rest = np.unique(partitions).size - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def broker_rows(snapshot: FleetSnapshot, ids: list[int]) -> Flags:
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
    """Sort the largest first; equal ones stay in the order of the snapshot."""
    return positions[np.argsort(-placement.partition_bytes[positions // placement.slots], kind="stable")]
