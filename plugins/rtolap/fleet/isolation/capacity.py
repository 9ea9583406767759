"""The audit of brokers: roles that are to be apart, pools whose brokers are there, and what stays free."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity, some
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, Flags, FleetSnapshot, Int64s
from rtolap.model.fleet import FleetCluster
from rtolap.model.quantities import size_text


def role_findings(cluster: FleetCluster, snapshot: FleetSnapshot) -> Iterator[Finding]:
    """Yield a finding for each node that has an id in both roles: a controller and broker in one process."""
    brokers = set(snapshot.brokers.ids[snapshot.brokers.states != BrokerState.ABSENT].tolist())
    if cluster.roles == "separate":
        both = sorted(brokers & {*cluster.controllers, snapshot.controller})
        if both:
            yield Finding(
                kind=FindingKind.COMBINED_ROLES,
                severity=Severity.WARNING,
                subject=f"nodes {some(both)}",
                message="controllers take reads and writes too, which hold up what they decide",
                expected="controllers in processes of their own",
                found=f"{len(both)} that are brokers as well",
                repair="add controllers with process.roles=controller, then remove these from the quorum",
                brokers=tuple(both),
            )
    for pool, declared in cluster.pools.items():
        absent = sorted(declared.ids - brokers)
        if absent:
            yield Finding(
                kind=FindingKind.ABSENT_BROKER,
                severity=Severity.WARNING,
                subject=f"pool {pool}",
                message="a pool names brokers that the cluster does not have",
                expected=f"{len(declared.ids)} brokers",
                found=f"without {some(absent)}",
                repair="start them, or take them out of the pool in the registry",
                brokers=tuple(absent),
            )


def reserve_findings(cluster: FleetCluster, snapshot: FleetSnapshot) -> Iterator[Finding]:
    dirs, brokers = snapshot.log_dirs, snapshot.brokers
    known = (dirs.total_bytes > 0) & (dirs.usable_bytes != UNKNOWN) & ~dirs.offline
    share = cluster.reserve.disk_percent / 100
    too_full = known & (dirs.usable_bytes < dirs.total_bytes * share)
    for row in np.flatnonzero(too_full):
        broker = int(brokers.ids[dirs.brokers[row]])
        free = 100 * float(dirs.usable_bytes[row]) / float(dirs.total_bytes[row])
        yield Finding(
            kind=FindingKind.DISK_RESERVE,
            severity=Severity.WARNING,
            subject=f"{broker}:{dirs.paths[row]}",
            message="a disk is fuller than the reserve allows",
            expected=f"{cluster.reserve.disk_percent:g} % free",
            found=f"{free:.1f} %",
            repair="rtolap fleet plan disks",
            brokers=(broker,),
        )
    if cluster.reserve.brokers:
        for pool, members in _pools(cluster, snapshot):
            yield from _broker_reserve(cluster, snapshot, pool, members & _all_known(snapshot, known))


def unknown_disks(snapshot: FleetSnapshot) -> int:
    dirs = snapshot.log_dirs
    return int((((dirs.total_bytes <= 0) | (dirs.usable_bytes == UNKNOWN)) & ~dirs.offline).sum())


def _pools(cluster: FleetCluster, snapshot: FleetSnapshot) -> Iterator[tuple[str, Flags]]:
    """Yield the exclusive pools, and all other brokers as one, with their brokers that are there."""
    there = snapshot.brokers.states != BrokerState.ABSENT
    rest = there.copy()
    for pool, declared in cluster.pools.items():
        if declared.exclusive:
            members = there & np.isin(snapshot.brokers.ids, sorted(declared.ids))
            rest &= ~members
            yield f"pool {pool}", members
    yield "brokers of no pool", rest


def _all_known(snapshot: FleetSnapshot, known: Flags) -> Flags:
    """Return the brokers with at least one disk whose disks are all known."""
    disks = np.bincount(snapshot.log_dirs.brokers, minlength=len(snapshot.brokers))
    counted = np.bincount(snapshot.log_dirs.brokers[known], minlength=len(snapshot.brokers))
    known_all: Flags = (disks > 0) & (disks == counted)
    return known_all


def _broker_reserve(
    cluster: FleetCluster, snapshot: FleetSnapshot, pool: str, members: Flags
) -> Iterator[Finding]:
    rows = np.flatnonzero(members)
    spare = cluster.reserve.brokers
    if not len(rows):
        return
    total = _by_broker(snapshot, snapshot.log_dirs.total_bytes)[rows]
    usable = _by_broker(snapshot, snapshot.log_dirs.usable_bytes)[rows]
    used = total - usable
    room = total * (1 - cluster.reserve.disk_percent / 100) - used
    lost = np.argsort(-used, kind="stable")[:spare]
    left = np.setdiff1d(np.arange(len(rows)), lost)
    lacking = float(used[lost].sum() - room[left].sum())
    if lacking > 0 or not len(left):
        yield Finding(
            kind=FindingKind.BROKER_RESERVE,
            severity=Severity.WARNING,
            subject=pool,
            message=f"what {spare} brokers hold would not fit on the others",
            expected=f"room for brokers {some(snapshot.brokers.ids[rows[lost]].tolist())} on the others",
            found=f"{size_text(lacking)} too little",
            repair="rtolap fleet plan add of more brokers, or shorter retention",
            brokers=tuple(snapshot.brokers.ids[rows[lost]].tolist()),
        )


def _by_broker(snapshot: FleetSnapshot, values: Int64s) -> Int64s:
    sums = np.zeros(len(snapshot.brokers), np.int64)
    np.add.at(sums, snapshot.log_dirs.brokers, values)
    return sums
