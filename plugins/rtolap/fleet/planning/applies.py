"""Whether a plan may be carried out on a fleet as it is now: the same cluster, the partitions as the plan
takes them to be, and no rule broken (`rules`), whoever made the plan."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from rtolap.base.errors import OtherCluster, PlanOutdated, PlanRefused
from rtolap.fleet.planning.allowed import AllowedBrokers
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.rules import broken_rules
from rtolap.fleet.snapshot.file import digest_of
from rtolap.fleet.snapshot.model import UNKNOWN, Int64s, Snapshot


def check_applies(plan: Plan, snapshot: Snapshot, *, allowed: AllowedBrokers | None = None) -> None:
    """allowed: where topics may stand, by default anywhere. Raises OtherCluster, PlanOutdated where a planned
    partition or a directory is no longer what it was, and PlanRefused where the plan would break a rule."""
    if plan.cluster_id != snapshot.cluster_id:
        raise OtherCluster(
            "the plan was made for another cluster", expected=plan.cluster_id, found=snapshot.cluster_id
        )
    rows = _rows(plan, snapshot)
    if digest_of(snapshot) != plan.snapshot_digest:
        _refuse_changed(plan, snapshot, rows)
    broken = broken_rules(plan, snapshot, rows, allowed)
    if broken:
        raise PlanRefused(
            "the plan would break a rule", found="; ".join(broken), action="plan again, of a new snapshot"
        )


def _rows(plan: Plan, snapshot: Snapshot) -> Int64s:
    """The planned partitions in the snapshot. Raises PlanOutdated where one is gone."""
    topics = {name: row for row, name in enumerate(snapshot.topics.names)}
    owners = np.array([topics.get(name, UNKNOWN) for name in plan.topics], np.int64)
    wanted = owners[plan.partition_topics] << 32 | plan.partition_numbers
    keys = snapshot.partitions.topics.astype(np.int64) << 32 | snapshot.partitions.numbers
    rows = np.searchsorted(keys, wanted)
    there = np.append(keys, UNKNOWN)[rows] == wanted
    if not there.all():
        gone = int(np.argmin(there))
        _outdated(f"{_name(plan, gone)} is there", "no such partition")
    return rows


def _refuse_changed(plan: Plan, snapshot: Snapshot, rows: Int64s) -> None:
    first = snapshot.partitions.first_replicas
    for row, partition in enumerate(rows):
        now = snapshot.brokers.ids[snapshot.replicas.brokers[first[partition] : first[partition + 1]]]
        was = plan.before.brokers[plan.before.first[row] : plan.before.first[row + 1]]
        if not np.array_equal(now, was):
            _outdated(f"{_name(plan, row)} has replicas {was.tolist()}", str(now.tolist()))


def _outdated(expected: str, found: str) -> NoReturn:
    raise PlanOutdated(
        "the fleet is no longer what the plan was made of",
        expected=expected,
        found=found,
        action="plan again, of a new snapshot",
    )


def _name(plan: Plan, row: int) -> str:
    return f"{plan.topics[plan.partition_topics[row]]}-{plan.partition_numbers[row]}"
