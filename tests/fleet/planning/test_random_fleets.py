"""Plans of fleets drawn from a seed keep every rule and reach their goal, by a slow cluster that does them.

Replay one: `pytest tests/fleet/planning/test_random_fleets.py -k "[seed]"` with the same RTOLAP_SEEDS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, ImpossiblePlan, IncompleteSnapshot, NotYet
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.leaders_by_load import led_load, plan_leaders_by_load, sent_bytes_per_s
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.plan_file import plan_from, plan_json
from rtolap.fleet.planning.repairs import plan_racks
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, ReplicaState

from tests.support.fleet.exact_leaders import fewest_most_leading
from tests.support.fleet.hand_made import hand_made
from tests.support.fleet.random_fleets import Oddities, random_fleet
from tests.support.fleet.random_rules import may_stand, random_rules
from tests.support.fleet.slow_cluster import Replica, SlowCluster
from tests.support.seeds import so_many

GROUPS = 2
FLEETS = so_many(40, 400)  # of which one in eight is searched
REFUSALS = (ImpossiblePlan, IncompleteSnapshot, NotYet, DefinitionError)
Planner = Callable[[], Plan]


@dataclass(frozen=True)
class Drawn:
    """may_stand: brokers by topic, where the fleet has placement rules; `limits` say the same."""

    snapshot: FleetSnapshot
    limits: Limits
    may_stand: dict[str, set[int]] | None

    def cluster(self, disk_limit: float) -> SlowCluster:
        return SlowCluster(self.snapshot, disk_limit=disk_limit, may_stand=self.may_stand)


def _drawn(seed: int) -> Drawn:
    """Of three fleets one has placement rules, which others kept to before or did not."""
    odd = Oddities(0.1, 0.1, 0.05, 0.05, 0.1, 0.1) if seed % 2 else Oddities()
    snapshot = random_fleet(seed, odd=odd)
    if seed % 3:
        return Drawn(snapshot, Limits(), None)
    rules = random_rules(seed, snapshot)
    allowed = placement_rules(rules, snapshot).allowed_brokers
    return Drawn(snapshot, Limits(allowed=allowed), may_stand(rules, snapshot))


def _planned(drawn: Drawn, plan: Planner, seed: int, outcomes: Counter[str]) -> Plan | None:
    """The plan, if there is one, after it was carried out in two ways; made twice, it is the same."""
    try:
        made = plan()
    except REFUSALS as error:
        outcomes[type(error).__name__] += 1
        return None
    data = plan_json(made)
    if seed % 5 == 0:
        assert plan_json(plan()) == data
        assert plan_json(plan_from(data)) == data
    check_applies(made, drawn.snapshot, allowed=drawn.limits.allowed)
    drawn.cluster(made.disk_limit).carry_out(made, seed, hoarding=True)
    outcomes["moves" if len(made.moves) else "still"] += 1
    return made


def _after(drawn: Drawn, plan: Plan, seed: int) -> SlowCluster:
    cluster = drawn.cluster(plan.disk_limit)
    cluster.carry_out(plan, seed)
    return cluster


def _spread(cluster: SlowCluster, plan: Plan) -> tuple[float, float]:
    """How far the fullest and the idlest disk are from the mean, in bytes of a disk, and the deviation."""
    shares = cluster.shares()
    total = {where: disk.total for where, disk in cluster.disks.items() if disk.takes}
    mean = sum(shares[where] * total[where] for where in shares) / sum(total.values())
    tolerance = float(dict(plan.arguments)["tolerance"])
    outside = sum(max(abs(share - mean) - tolerance, 0) * total[where] for where, share in shares.items())
    squares = sum((share - mean) ** 2 * total[where] for where, share in shares.items())
    return outside, squares / sum(total.values())


def _check_disks(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    runs = 0 if seed % 8 else 1
    plan = _planned(
        drawn, lambda: plan_disks(snapshot, tolerance=0.05, limits=drawn.limits, runs=runs), seed, outcomes
    )
    if plan is None or not len(plan.moves):
        return
    before, after = SlowCluster(snapshot, disk_limit=0.9), _after(drawn, plan, seed)
    running = bool(before.running)
    if not running:  # what runs already comes on top of both
        for row, (broker, path) in enumerate(zip(plan.disks.brokers.tolist(), plan.disks.paths, strict=True)):
            if before.disks[broker, path].takes:
                assert after.disks[broker, path].used == plan.disks.after_bytes[row]
        assert _spread(after, plan)[1] < _spread(before, plan)[1]
    assert plan.bounds.before_bytes > 0, "moves within the tolerance"
    # A copy counts as the largest replica of its partition, which may be a little more than what goes.
    assert plan.bounds.after_bytes <= 1.01 * plan.bounds.before_bytes
    assert max(after.preferred().values()) <= max(before.preferred().values())
    outcomes["reached" if not plan.bounds.after_bytes else "nearer"] += 1


def _check_leaders(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    plan = _planned(drawn, lambda: plan_leaders(snapshot, limits=drawn.limits), seed, outcomes)
    assert plan is not None
    assert not len(plan.moves)
    before, after = SlowCluster(snapshot, disk_limit=0.9), _after(drawn, plan, seed)
    for name, replicas in after.replicas.items():
        assert {(r.broker, r.path) for r in replicas} == {(r.broker, r.path) for r in before.replicas[name]}
    assert _most_leading(after) == fewest_most_leading(snapshot)


def _check_leaders_by_load(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    sent = sent_bytes_per_s(snapshot)
    plan = _planned(drawn, lambda: plan_leaders_by_load(snapshot, limits=drawn.limits), seed, outcomes)
    assert plan is not None
    assert not len(plan.moves)
    after = _after(drawn, plan, seed)
    if not len(plan):
        return
    loads: Counter[int] = Counter()
    for row, load in enumerate(sent.tolist()):
        topic = snapshot.topics.names[snapshot.partitions.topics[row]]
        replicas = after.replicas.get((topic, int(snapshot.partitions.numbers[row])))
        if replicas:
            loads[replicas[0].broker] += load
    busiest = led_load(snapshot, sent)[snapshot.brokers.states == BrokerState.ALIVE].max()
    assert max(loads[broker] for broker in after.alive) < busiest * (1 + 1e-9)
    outcomes["evener"] += 1


def _most_leading(cluster: SlowCluster) -> int:
    return max((count for broker, count in cluster.preferred().items() if broker in cluster.alive), default=0)


def _check_racks(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    plan = _planned(drawn, lambda: plan_racks(snapshot, limits=drawn.limits), seed, outcomes)
    if plan is not None:
        after = _after(drawn, plan, seed)
        left_out = {left_out.name for left_out in plan.left_out}
        for name, replicas in after.replicas.items():
            alone = max(after.rack_counts(replicas).values(), default=0) <= 1
            assert alone != (f"{name[0]}-{name[1]}" in left_out), name


def _check_drain(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    ids = snapshot.brokers.ids
    broker = int(ids[seed % len(ids)])
    plan = _planned(drawn, lambda: plan_drain(snapshot, [broker], limits=drawn.limits), seed, outcomes)
    if plan is not None:
        after = _after(drawn, plan, seed)
        assert all(replica.broker != broker for replicas in after.replicas.values() for replica in replicas)
        assert (plan.moves.from_brokers == broker).all()


def _check_remove_disk(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    row = seed % len(snapshot.log_dirs)
    broker = int(snapshot.brokers.ids[snapshot.log_dirs.brokers[row]])
    path = snapshot.log_dirs.paths[row]
    plan = _planned(
        drawn, lambda: plan_remove_disk(snapshot, broker, path, limits=drawn.limits), seed, outcomes
    )
    if plan is not None:
        after = _after(drawn, plan, seed)
        for replicas in after.replicas.values():
            assert all((replica.broker, replica.path) != (broker, path) for replica in replicas)
        assert (plan.moves.from_brokers == broker).all()


def _check_add(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    broker = int(snapshot.brokers.ids[seed % len(snapshot.brokers)])
    plan = _planned(drawn, lambda: plan_add(snapshot, [broker], limits=drawn.limits), seed, outcomes)
    if plan is not None:
        assert (plan.moves.to_brokers == broker).all()
        assert (plan.moves.from_brokers != broker).all()
        assert plan.bounds.after_bytes <= plan.bounds.before_bytes


def _check_factor(drawn: Drawn, seed: int, outcomes: Counter[str]) -> None:
    snapshot = drawn.snapshot
    topics = list(snapshot.topics.names[:2])
    chosen = np.isin(snapshot.partitions.topics, (0, 1))
    factor = int(np.diff(snapshot.partitions.first_replicas)[chosen].max()) + (seed % 7 - 1) // 2
    plan = _planned(drawn, lambda: plan_factor(snapshot, topics, factor, limits=drawn.limits), seed, outcomes)
    if plan is not None:
        after = _after(drawn, plan, seed)
        before = SlowCluster(snapshot, disk_limit=0.9)
        raised = set(topics) - {left_out.name for left_out in plan.left_out}
        assert raised
        for name, replicas in after.replicas.items():
            assert len(replicas) == (factor if name[0] in raised else len(before.replicas[name]))


CHECKS = (
    _check_disks,
    _check_leaders,
    _check_leaders_by_load,
    _check_racks,
    _check_drain,
    _check_remove_disk,
    _check_add,
    _check_factor,
)


SPOILT: tuple[tuple[Callable[[SlowCluster], object], str], ...] = (
    (lambda cluster: cluster.racks.update({4: "a"}), "stands in fewer racks"),
    (lambda cluster: cluster.running.add(("t", 0)), "is being moved already"),
    (lambda cluster: cluster.led.update({("t", 0): False}), "has no leader to copy from"),
    (lambda cluster: cluster.sizes.update({("t", 0): UNKNOWN}), "is of unknown size"),
    (lambda cluster: cluster.replicas[("t", 0)].append(Replica(3, "/d", 1)), "loses replicas"),
)


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_rule_holds_after_every_move(group: int) -> None:
    outcomes: dict[str, Counter[str]] = {check.__name__: Counter() for check in CHECKS}
    for seed in range(group, FLEETS, GROUPS):
        drawn = _drawn(seed)
        for check in CHECKS:
            try:
                check(drawn, seed, outcomes[check.__name__])
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {check.__name__}: {error}") from error
    for name, met in outcomes.items():
        if name == "_check_leaders_by_load":
            assert met["evener"] > met["still"] / 2, met
        elif name not in ("_check_leaders", "_check_racks"):
            assert met["moves"], f"{name} plans no move in any of these fleets: {met}"


def test_a_planner_that_breaks_a_rule_is_noticed() -> None:
    """The slow cluster refuses what planners must not do."""
    snapshot = random_fleet(3, odd=Oddities(0, 0, 0, 0, 0, 0))
    plan = plan_disks(snapshot, tolerance=0.01, runs=0)
    assert len(plan.moves)
    cluster = SlowCluster(snapshot, disk_limit=0.01)
    with pytest.raises(AssertionError, match="overfills"):
        cluster.carry_out(plan, 0)
    cluster = SlowCluster(snapshot, disk_limit=0.9)
    for disk in cluster.disks.values():
        disk.takes = False
    with pytest.raises(AssertionError, match="takes nothing"):
        cluster.carry_out(plan, 0)
    nowhere = {topic: set[int]() for topic in snapshot.topics.names}
    with pytest.raises(AssertionError, match="may not stand"):
        SlowCluster(snapshot, disk_limit=0.9, may_stand=nowhere).carry_out(plan, 0)
    fleet = hand_made({1: "a", 2: "b", 3: "c", 4: "d"}, {"t": [[1, 2]]}, used_bytes={3: 10})
    drain = plan_drain(fleet, [2])
    assert drain.after.brokers.tolist() == [1, 4]
    for spoil, said in SPOILT:
        cluster = SlowCluster(fleet, disk_limit=0.9)
        spoil(cluster)
        with pytest.raises(AssertionError, match=said):
            cluster.carry_out(drain, 0)
    SlowCluster(fleet, disk_limit=0.9).carry_out(drain, 0)


def test_the_drawn_fleets_have_what_makes_planning_hard() -> None:
    met: Counter[str] = Counter()
    for seed in range(FLEETS):
        drawn = _drawn(seed)
        snapshot, dirs = drawn.snapshot, drawn.snapshot.log_dirs
        known = (dirs.total_bytes > 0) & (dirs.usable_bytes >= 0)
        used = np.where(known, 1 - dirs.usable_bytes / np.maximum(dirs.total_bytes, 1), 0)
        met["one broker"] += len(snapshot.brokers) == 1
        met["many brokers"] += len(snapshot.brokers) >= 40
        met["no racks"] += set(snapshot.brokers.racks) == {None}
        met["racks"] += len(set(snapshot.brokers.racks)) > 2
        met["absent brokers"] += bool((snapshot.brokers.states == BrokerState.ABSENT).any())
        met["fenced brokers"] += bool((snapshot.brokers.states == BrokerState.FENCED).any())
        met["offline disks"] += bool(dirs.offline.any())
        met["cordoned disks"] += bool(dirs.cordoned.any())
        met["disks of several sizes"] += len(set(np.round(np.log2(dirs.total_bytes[known])).tolist())) > 1
        met["disks above the limit"] += bool((used > 0.9).any())
        met["unknown capacities"] += not known.all()
        met["unknown sizes"] += bool((snapshot.replicas.size_bytes == UNKNOWN).any())
        met["running moves"] += bool((snapshot.replicas.states != ReplicaState.STAYING).any())
        met["partitions without leader"] += bool((snapshot.partitions.leaders == UNKNOWN).any())
        met["placement rules"] += drawn.may_stand is not None
        met["misplaced replicas"] += drawn.may_stand is not None and any(
            replica.broker not in drawn.may_stand[topic]
            for (topic, _), replicas in drawn.cluster(0.9).replicas.items()
            for replica in replicas
        )
    rare = {name: count for name, count in met.items() if count < FLEETS // 40}
    assert not rare, met
