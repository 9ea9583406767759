"""Rules that no plan may break, whoever made it: checked on a plan and a snapshot, by columns.

brokers     a partition has at least one replica, none twice on a broker, and never fewer than it had
targets     a replica comes only to a directory that takes it: the broker serves, the disk is neither
            offline nor cordoned and its size is known
capacity    no disk gets more than its limit, counting what comes and not what leaves, so in any order;
            what left in a stage of the plan is room in the next
racks       a partition stands in no fewer racks than before, and no rack holds more of it than the
            fullest did; a new replica doubles a rack only where every rack has one
placement   a replica comes only to a broker where its topic may stand, where such rules are told
sources     a copy is made only of a partition that has a leader
running     a partition under a running reassignment, or a move between disks, is left alone

A plan of several stages is checked stage by stage, each on the fleet as the stages before it leave it.

`check_applies` says whether a plan may be carried out on a fleet as it is now: the same cluster, the
partitions as the plan takes them to be, and no rule broken.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from rtolap.base.errors import OtherCluster, PlanOutdated, PlanRefused
from rtolap.fleet.planning.placement import (
    NO_RACK,
    AllowedBrokers,
    Placement,
    distinct_racks,
    fullest_rack,
)
from rtolap.fleet.planning.plan import Assignment, Plan
from rtolap.fleet.planning.planned_state import state_with
from rtolap.fleet.snapshot.file import digest_of
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int32s, Int64s

NAMED_MAX = 3


def check_applies(plan: Plan, snapshot: FleetSnapshot, *, allowed: AllowedBrokers | None = None) -> None:
    """Check that a plan still applies. `allowed` is where topics may stand, by default anywhere. Raises
    OtherCluster, PlanOutdated where a planned partition or a directory has changed, and PlanRefused where
    the plan would break a rule."""
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


def _rows(plan: Plan, snapshot: FleetSnapshot) -> Int64s:
    """Return the planned partitions in the snapshot. Raises PlanOutdated where one is gone."""
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


def _refuse_changed(plan: Plan, snapshot: FleetSnapshot, rows: Int64s) -> None:
    first = snapshot.partitions.first_replicas
    for row in np.sort(np.unique(rows, return_index=True)[1]).tolist():
        partition = rows[row]
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


def broken_rules(
    plan: Plan, snapshot: FleetSnapshot, rows: Int64s, allowed: AllowedBrokers | None = None
) -> tuple[str, ...]:
    """Return the rules that the plan would break, in words; nothing if it may be carried out. `rows` are the
    plan's partitions in the snapshot. `allowed` is where topics may stand, by default anywhere."""
    broken: tuple[str, ...] = ()
    state = snapshot
    for stage in range(plan.stage_count):
        mine = np.flatnonzero(plan.stages == stage)
        mine = mine[np.argsort(rows[mine], kind="stable")]
        broken = _broken_in_stage(plan, state, mine, rows[mine], allowed, first=stage == 0)
        if broken or stage + 1 == plan.stage_count:
            break
        brokers, log_dirs = _matrix(plan.after, mine, state)
        state = state_with(state, rows[mine], brokers, _targets(plan, state, log_dirs))
    return broken


def _broken_in_stage(
    plan: Plan,
    state: FleetSnapshot,
    chosen: Int64s,
    rows: Int64s,
    allowed: AllowedBrokers | None,
    *,
    first: bool,
) -> tuple[str, ...]:
    """Return the rules that a stage would break. `state` is the fleet before the stage, `chosen` the plan's
    rows of it, `rows` their partitions there."""
    placement = Placement(state, disk_limit=plan.disk_limit)
    before, before_dirs = _matrix(plan.before, chosen, state)
    after, after_dirs = _matrix(plan.after, chosen, state)
    present = after != UNKNOWN
    checks: list[tuple[str, Flags]] = [
        ("has no replica, or fewer than before", _fewer(before, after)),
        ("has two replicas on one broker", _doubled(after)),
    ]
    if not first:
        checks.append(("is not where earlier stages leave it", _elsewhere(placement, rows, before)))
    targets = _targets(plan, state, after_dirs)
    comes = present & ~_stays(before, before_dirs, after, targets)
    unknown = comes & ((targets == UNKNOWN) | (after < 0) | ~np.append(placement.takes, False)[targets])
    checks.append(("gets a replica on a directory that takes none", unknown.any(axis=1)))
    others = comes & (targets != UNKNOWN) & (np.append(state.log_dirs.brokers, UNKNOWN)[targets] != after)
    checks.append(("gets a replica on another broker's directory", others.any(axis=1)))
    checks += _over_capacity(placement, rows, comes & (targets != UNKNOWN), targets)
    checks += _worse_racks(placement, before, after)
    if allowed is not None:
        misplaced = _misplaced(allowed, allowed.rules_of_partitions(state)[rows], before, after)
        checks.append(("comes to a broker where its topic may not stand", misplaced))
    copies = comes.any(axis=1)
    checks.append(("has no leader to copy from", copies & ~placement.copied[rows]))
    reordered = (before.shape != after.shape) or (before != after).any(axis=1)
    checks.append(("is being moved already", (copies | reordered) & placement.fixed[rows]))
    return tuple(
        f"{int(found.sum())} partitions: {_named(plan, chosen[np.flatnonzero(found)])} {problem}"
        for problem, found in checks
        if found.any()
    )


def _elsewhere(placement: Placement, rows: Int64s, before: Int32s) -> Flags:
    now = placement.brokers[rows]
    slots = max(now.shape[1], before.shape[1])
    wide = [
        np.pad(each, ((0, 0), (0, slots - each.shape[1])), constant_values=UNKNOWN) for each in (now, before)
    ]
    found: Flags = (wide[0] != wide[1]).any(axis=1)
    return found


def _matrix(assignment: Assignment, chosen: Int64s, snapshot: FleetSnapshot) -> tuple[Int32s, Int32s]:
    """Return, of these of the plan's rows, rows of brokers and of the plan's directories; -2 for a broker
    that the snapshot does not know."""
    counts = np.diff(assignment.first)[chosen]
    slots = int(counts.max(initial=1))
    owners = np.repeat(np.arange(counts.size), counts)
    within = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)
    places = owners * slots + within
    taken = np.repeat(assignment.first[:-1][chosen], counts) + within
    ids, named = snapshot.brokers.ids, assignment.brokers[taken]
    found = np.searchsorted(ids, named)
    there = np.append(ids, UNKNOWN)[np.minimum(found, ids.size)] == named
    brokers = np.full((counts.size, slots), UNKNOWN, np.int32)
    brokers.ravel()[places] = np.where(there, found, -2)
    log_dirs = np.full((counts.size, slots), UNKNOWN, np.int32)
    log_dirs.ravel()[places] = assignment.log_dirs[taken]
    return brokers, log_dirs


def _targets(plan: Plan, snapshot: FleetSnapshot, dirs: Int32s) -> Int32s:
    """Return the snapshot's rows of the plan's directories."""
    ids, own = snapshot.brokers.ids, snapshot.log_dirs
    rows = {
        (int(ids[broker]), path): row
        for row, (broker, path) in enumerate(zip(own.brokers, own.paths, strict=True))
    }
    translated = [
        rows.get((int(broker), path), UNKNOWN)
        for broker, path in zip(plan.disks.brokers, plan.disks.paths, strict=True)
    ]
    return np.array([*translated, UNKNOWN], np.int32)[dirs]


def _stays(before: Int32s, before_dirs: Int32s, after: Int32s, targets: Int32s) -> Flags:
    """Return replicas of the plan's end that are on their broker and in their directory already."""
    same = np.zeros(after.shape, np.bool_)
    for slot in range(before.shape[1]):
        on_broker = (after == before[:, slot, None]) & (before[:, slot, None] != UNKNOWN)
        left = (targets == UNKNOWN) | (targets == before_dirs[:, slot, None])
        same |= on_broker & left
    return same


def _fewer(before: Int32s, after: Int32s) -> Flags:
    now: Int64s = (after != UNKNOWN).sum(axis=1)
    few: Flags = (now < (before != UNKNOWN).sum(axis=1)) | (now == 0)
    return few


def _doubled(after: Int32s) -> Flags:
    ordered = np.sort(after, axis=1)
    twice: Flags = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != UNKNOWN)).any(axis=1)
    return twice


def _over_capacity(
    placement: Placement, rows: Int64s, comes: Flags, targets: Int32s
) -> list[tuple[str, Flags]]:
    sizes = np.broadcast_to(placement.partition_bytes[rows][:, None], comes.shape)
    unknown = (comes & (sizes == UNKNOWN)).any(axis=1)
    dirs = placement.total_bytes.size
    coming = np.bincount(targets[comes], np.maximum(sizes[comes], 0), dirs)
    over = (coming > 0) & (coming > placement.room_bytes())
    return [
        ("is of unknown size", unknown),
        ("comes to a disk that it would overfill", (comes & np.append(over, False)[targets]).any(axis=1)),
    ]


def _worse_racks(placement: Placement, before: Int32s, after: Int32s) -> list[tuple[str, Flags]]:
    was = np.where(before < 0, NO_RACK, placement.racks[before])
    now = np.where(after < 0, NO_RACK, placement.racks[after])
    able = np.unique(placement.racks[:-1][placement.able])
    fewest = -(-(after != UNKNOWN).sum(axis=1) // max(able.size, 1))
    return [
        ("stands in fewer racks", distinct_racks(now) < distinct_racks(was)),
        ("stands more often in one rack", fullest_rack(now) > np.maximum(fullest_rack(was), fewest)),
    ]


def _misplaced(allowed: AllowedBrokers, rules: Int32s, before: Int32s, after: Int32s) -> Flags:
    """Let what has stood where it may not stay there."""
    stood = (after[:, :, None] == before[:, None, :]).any(axis=2)
    comes = (after >= 0) & ~stood
    found: Flags = (comes & ~allowed.by_rule[rules[:, None], np.maximum(after, 0)]).any(axis=1)
    return found


def _named(plan: Plan, rows: Int64s) -> str:
    some = [
        f"{plan.topics[plan.partition_topics[row]]}-{plan.partition_numbers[row]}" for row in rows[:NAMED_MAX]
    ]
    return ", ".join(some) + (", …" if rows.size > NAMED_MAX else "")
