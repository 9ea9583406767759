"""A plan: what to change in a fleet, made of one snapshot and bound to it.

A plan states for each partition that changes the replicas it has and those it is to have, in the order of
preference. The mover reads `moves`; the person who approves it reads `why`, the bytes, the time and how full
every disk is before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from rtolap.base.errors import IncompleteSnapshot
from rtolap.fleet.planning.copy_time import Copies, CopyTime, copy_time, one_after_the_other
from rtolap.fleet.planning.placement import DISK_LIMIT, AllowedBrokers, Placement
from rtolap.fleet.planning.stages import PlanStage, one_stage
from rtolap.fleet.snapshot.file import digest_of
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Floats, Int32s, Int64s, Table

THROTTLE_BYTES_PER_S = 50_000_000


class PlanKind(StrEnum):
    """The decision that a plan carries out; `MissingFact.forbids` speaks of decisions by these words."""

    DISKS = "disks"
    LEADERS = "leaders"
    LEADERS_BY_LOAD = "leaders-by-load"
    RACK = "rack"
    DRAIN = "drain"
    ADD = "add"
    REMOVE_DISK = "remove-disk"
    FACTOR = "factor"
    PLACEMENT = "placement"


@dataclass(frozen=True)
class Limits:
    """Limits of a plan.

    Attributes:
        disk_limit: Maximum share of a disk that may be used.
        throttle_bytes_per_s: Throttle of each broker, in each direction and between its disks. It affects
            only the expected time.
        allowed: Brokers that topics may come to. None: all.
    """

    disk_limit: float = DISK_LIMIT
    throttle_bytes_per_s: int = THROTTLE_BYTES_PER_S
    allowed: AllowedBrokers | None = None


@dataclass(frozen=True)
class Bounds:
    """The bytes that the goal needs at least.

    Attributes:
        before_bytes: For the fleet as it is.
        after_bytes: For what the plan leaves undone.
    """

    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, eq=False)
class Disks(Table):
    """Every log directory of the snapshot, by broker id and path. Bytes are UNKNOWN where it does not say."""

    brokers: Int32s
    paths: tuple[str, ...]
    total_bytes: Int64s
    before_bytes: Int64s
    after_bytes: Int64s

    def utilisation(self, used_bytes: Int64s) -> Floats:
        share = np.full(len(self), np.nan)
        np.divide(used_bytes, self.total_bytes, out=share, where=(self.total_bytes > 0) & (used_bytes >= 0))
        return share


@dataclass(frozen=True, eq=False)
class Assignment:
    """Replicas of each planned partition: partition p has the rows first[p] up to first[p + 1].

    Attributes:
        brokers: Ids of brokers.
        log_dirs: Rows of `Plan.disks`. UNKNOWN where the directory is not known, or the broker chooses it.
    """

    first: Int64s
    brokers: Int32s
    log_dirs: Int32s


@dataclass(frozen=True, eq=False)
class Moves(Table):
    """The copies of a plan, by planned partition. Data is read from the partition's leader.

    Attributes:
        partitions: Rows of planned partitions.
        from_brokers: Broker of the replica that is removed. UNKNOWN where a replica is only added.
        from_log_dirs: Directory of that replica, or UNKNOWN.
        between_disks: The copy stays within one broker.
    """

    partitions: Int32s
    to_brokers: Int32s
    to_log_dirs: Int32s
    from_brokers: Int32s
    from_log_dirs: Int32s
    size_bytes: Int64s
    between_disks: Flags


@dataclass(frozen=True)
class LeftOut:
    """A change that a plan should contain and cannot, with the reason.

    Attributes:
        name: a topic, or a partition as topic-number.
    """

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Planned partitions, in rows by stage.

    The rows of a stage begin when all earlier ones have ended. A partition that stops on its way has a row in
    two stages.

    Attributes:
        topics: Names of topics.
        partition_topics: Rows of `topics`.
        partition_bytes: Size of one copy.
        bytes_in_per_s: Bytes written to each partition. NaN where the snapshot does not contain it.
        leaders: Ids of brokers.
        elections: Rows of partitions whose preferred replica is elected once it is there.
        stages: Stage of each row, from 0 on, in ascending order.
        left_out: Requested changes that the plan does not contain.
    """

    cluster_id: str
    snapshot_digest: str
    taken_at_ms: int
    kind: PlanKind
    arguments: tuple[tuple[str, str], ...]
    why: tuple[str, ...]
    disk_limit: float
    throttle_bytes_per_s: int
    bounds: Bounds
    disks: Disks
    topics: tuple[str, ...]
    partition_topics: Int32s
    partition_numbers: Int32s
    partition_bytes: Int64s
    bytes_in_per_s: Floats
    leaders: Int32s
    before: Assignment
    after: Assignment
    elections: Int32s
    stages: Int32s
    left_out: tuple[LeftOut, ...] = ()

    def __len__(self) -> int:
        """Return the number of changes of partitions."""
        return len(self.partition_topics)

    @property
    def stage_count(self) -> int:
        return int(self.stages[-1]) + 1 if self.stages.size else 1

    @cached_property
    def moves(self) -> Moves:
        return _moves(self)

    @property
    def between_brokers_bytes(self) -> int:
        return int(self.moves.size_bytes[~self.moves.between_disks].sum())

    @property
    def between_disks_bytes(self) -> int:
        return int(self.moves.size_bytes[self.moves.between_disks].sum())

    @property
    def moved_bytes(self) -> int:
        return int(self.moves.size_bytes.sum())

    @cached_property
    def copy_time(self) -> CopyTime:
        """Stages come one after the other."""
        moves = self.moves
        of_stages = self.stages[moves.partitions]
        times = []
        for stage in range(self.stage_count):
            mine = of_stages == stage
            copies = Copies(
                moves.partitions[mine],
                moves.to_brokers[mine],
                moves.size_bytes[mine],
                moves.between_disks[mine],
                self.leaders,
                np.diff(self.before.first),
                self.bytes_in_per_s,
            )
            times.append(copy_time(copies, self.throttle_bytes_per_s))
        return one_after_the_other(times)


def refuse_missing(snapshot: FleetSnapshot, kind: PlanKind) -> None:
    """Raise IncompleteSnapshot where facts that could not be read forbid this kind of plan."""
    for missing in snapshot.missing:
        if kind in missing.forbids:
            raise IncompleteSnapshot(
                f"a plan of kind {kind} cannot be made of this snapshot",
                expected=missing.fact,
                found=missing.reason,
                action="take a snapshot that has it",
            )


def plan_of(
    placement: Placement,
    kind: PlanKind,
    arguments: Sequence[tuple[str, str]],
    why: Sequence[str],
    bounds: Bounds,
    *,
    limits: Limits,
    elections: Int64s | None = None,
    stages: Sequence[PlanStage] | None = None,
    left_out: Sequence[LeftOut] = (),
) -> Plan:
    """Plan what is different in the placement. elections: partitions, whether they change or not. stages: the
    changes in their order; without them all are made at once."""
    snapshot = placement.snapshot
    elected = np.zeros(0, np.int64) if elections is None else elections
    if stages is None:
        stages = [one_stage(placement, np.union1d(placement.changed(), elected).astype(np.int64))]
    rows = np.concatenate([stage.rows for stage in stages]) if stages else np.zeros(0, np.int64)
    used_topics, topic_rows = np.unique(snapshot.partitions.topics[rows], return_inverse=True)
    leaders = snapshot.partitions.leaders[rows]
    ids = np.append(snapshot.brokers.ids, UNKNOWN).astype(np.int32)
    dirs = snapshot.log_dirs
    unknown = ~placement.known
    plan = Plan(
        cluster_id=snapshot.cluster_id,
        snapshot_digest=digest_of(snapshot),
        taken_at_ms=snapshot.taken_at_ms,
        kind=kind,
        arguments=tuple(sorted(arguments)),
        why=(*why, *_rule_reasons(placement)),
        disk_limit=placement.disk_limit,
        throttle_bytes_per_s=limits.throttle_bytes_per_s,
        bounds=bounds,
        disks=Disks(
            ids[dirs.brokers],
            dirs.paths,
            np.where(unknown, UNKNOWN, dirs.total_bytes),
            np.where(unknown, UNKNOWN, placement.used_bytes + placement.running_bytes),
            np.where(unknown, UNKNOWN, placement.after_bytes()),
        ),
        topics=tuple(snapshot.topics.names[row] for row in used_topics),
        partition_topics=topic_rows.astype(np.int32),
        partition_numbers=snapshot.partitions.numbers[rows],
        partition_bytes=placement.partition_bytes[rows],
        bytes_in_per_s=np.rint(snapshot.partitions.bytes_in_per_s[rows]),
        leaders=ids[leaders],
        before=_assignment(
            ids,
            _stacked([stage.brokers_before for stage in stages]),
            _stacked([stage.log_dirs_before for stage in stages]),
        ),
        after=_assignment(
            ids,
            _stacked([stage.brokers for stage in stages]),
            _stacked([stage.log_dirs for stage in stages]),
        ),
        elections=np.flatnonzero(np.isin(rows, elected)).astype(np.int32),
        stages=np.repeat(np.arange(len(stages)), [stage.rows.size for stage in stages]).astype(np.int32),
        left_out=tuple(left_out),
    )
    outpaced = _outpaced(plan)
    return replace(plan, why=(*plan.why, *outpaced)) if outpaced else plan


def _outpaced(plan: Plan) -> tuple[str, ...]:
    time = plan.copy_time
    if not time.outpaced.size:
        return ()
    row = int(time.outpaced[0])
    partition = f"{plan.topics[plan.partition_topics[row]]}-{plan.partition_numbers[row]}"
    return (
        f"Under its throttle the plan would never end: {time.outpaced.size} partitions, such as {partition},"
        f" are written as fast as they may be copied. It must be {time.needed_bytes_per_s} bytes a second.",
    )


def _rule_reasons(placement: Placement) -> tuple[str, ...]:
    if placement.allowed.by_rule.all():
        return ()
    return ("Replicas come only to where placement rules let their topics stand.",)


def _stacked(matrices: Sequence[Int32s]) -> Int32s:
    return np.concatenate(matrices) if matrices else np.zeros((0, 1), np.int32)


def _assignment(ids: Int32s, brokers: Int32s, log_dirs: Int32s) -> Assignment:
    present = brokers != UNKNOWN
    first = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)
    return Assignment(first, ids[brokers[present]], log_dirs[present])


def _moves(plan: Plan) -> Moves:
    before, after = plan.before, plan.after
    old_rows = np.repeat(np.arange(len(plan)), np.diff(before.first))
    new_rows = np.repeat(np.arange(len(plan)), np.diff(after.first))
    old_keys = old_rows.astype(np.int64) << 32 | before.brokers
    new_keys = new_rows.astype(np.int64) << 32 | after.brokers
    order = np.argsort(old_keys, kind="stable")
    found = np.searchsorted(old_keys[order], new_keys)
    match = np.append(order, 0)[np.minimum(found, order.size)]
    stays = (found < order.size) & (np.append(old_keys, UNKNOWN)[match] == new_keys)
    was = np.append(before.log_dirs, UNKNOWN)[match]
    between = stays & (after.log_dirs != was) & (after.log_dirs != UNKNOWN)
    made = np.flatnonzero(~stays | between)
    # A replica that goes is paired with one that comes, both in the order of preference.
    going = np.flatnonzero(~np.isin(old_keys, new_keys))
    coming = made[~stays[made]]
    sources = np.full(after.brokers.size, UNKNOWN, np.int64)
    sources[coming] = _paired(new_rows[coming], old_rows[going], going)
    sources[between] = match[between]
    chosen = sources[made]
    return Moves(
        partitions=new_rows[made].astype(np.int32),
        to_brokers=after.brokers[made],
        to_log_dirs=after.log_dirs[made],
        from_brokers=np.append(before.brokers, UNKNOWN)[chosen].astype(np.int32),
        from_log_dirs=np.append(before.log_dirs, UNKNOWN)[chosen].astype(np.int32),
        size_bytes=np.maximum(plan.partition_bytes[new_rows[made]], 0),
        between_disks=between[made],
    )


def _paired(coming_rows: Int64s, going_rows: Int64s, going: Int64s) -> Int64s:
    """Return, for each coming replica, the leaving one that it replaces: the nth of a partition with its
    nth.
    """
    nth_coming = np.arange(coming_rows.size) - np.searchsorted(coming_rows, coming_rows)
    nth_going = np.arange(going_rows.size) - np.searchsorted(going_rows, going_rows)
    keys = going_rows.astype(np.int64) << 16 | nth_going
    wanted = coming_rows.astype(np.int64) << 16 | nth_coming
    place = np.searchsorted(keys, wanted)
    there = place < keys.size
    there[there] = keys[place[there]] == wanted[there]
    found = np.full(coming_rows.size, UNKNOWN, np.int64)
    found[there] = going[place[there]]
    return found
