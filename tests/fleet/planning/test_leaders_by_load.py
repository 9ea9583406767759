"""Leaders by load beside an exact solver, on fleets drawn from seeds; what it refuses and leaves alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rtolap.base.errors import IncompleteSnapshot
from rtolap.fleet.planning.leaders_by_load import led_load, plan_leaders_by_load, sent_bytes_per_s
from rtolap.fleet.planning.plan import Plan, PlanKind
from rtolap.fleet.planning.plan_file import plan_from, plan_json
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import FleetSnapshot

from tests.support.fleet.exact_loads import least_busiest_load
from tests.support.fleet.hand_made import hand_made
from tests.support.fleet.random_fleets import Oddities, huge_fleet, random_fleet
from tests.support.fleet.slow_cluster import SlowCluster
from tests.support.seeds import so_many

FLEETS = so_many(10, 20)
RACKS = {1: "a", 2: "b", 3: "c"}


def with_rates(snapshot: FleetSnapshot, into: list[float], out: list[float]) -> FleetSnapshot:
    rates = replace(snapshot.partitions, bytes_in_per_s=np.array(into), bytes_out_per_s=np.array(out))
    return replace(snapshot, partitions=rates)


def loads_after(snapshot: FleetSnapshot, plan: Plan, seed: int) -> dict[int, float]:
    """By broker that serves, counted replica by replica on a cluster that has carried out the plan."""
    cluster = SlowCluster(snapshot, disk_limit=plan.disk_limit)
    cluster.carry_out(plan, seed)
    sent = sent_bytes_per_s(snapshot)
    loads = dict.fromkeys(cluster.alive, 0.0)
    for row in range(len(snapshot.partitions)):
        name = (
            snapshot.topics.names[snapshot.partitions.topics[row]],
            int(snapshot.partitions.numbers[row]),
        )
        replicas = cluster.replicas[name]
        if replicas and replicas[0].broker in loads:
            loads[replicas[0].broker] += float(sent[row])
    return loads


@pytest.mark.seeded
def test_the_busiest_broker_sends_little_more_than_it_has_to() -> None:
    ratios = []
    for seed in range(FLEETS):
        snapshot = random_fleet(seed, odd=Oddities(0.1, 0, 0, 0, 0.1, 0), brokers_max=8)
        plan = plan_leaders_by_load(snapshot)
        assert plan_json(plan_leaders_by_load(snapshot)) == plan_json(plan)
        assert plan_json(plan_from(plan_json(plan))) == plan_json(plan)
        assert not len(plan.moves)
        check_applies(plan, snapshot)
        now = led_load(snapshot, sent_bytes_per_s(snapshot))[snapshot.brokers.states == 0]
        after = loads_after(snapshot, plan, seed)
        if len(plan):
            assert max(after.values()) < now.max() * (1 + 1e-9), seed
            busiest = max(after.values())
        else:
            busiest = float(now.max(initial=0.0))
        try:
            least = least_busiest_load(snapshot, sent_bytes_per_s(snapshot))
        except TimeoutError:
            continue
        mean = sum(after.values()) / max(len(after), 1)
        ratios.append(busiest / max(least, mean * 1.02, 1.0))
    assert len(ratios) > FLEETS * 0.7
    assert max(ratios) < 1.15
    assert sum(ratios) / len(ratios) < 1.02


def test_load_goes_along_brokers_that_share_no_partition() -> None:
    """Broker 1 and 3 share nothing: what 1 gives goes to 2, and what 2 had to 3."""
    fleet = hand_made(RACKS, {"t": [[1, 2], [1, 2], [1, 2], [2, 3], [2, 3]]})
    fleet = with_rates(fleet, [0.0] * 5, [10.0] * 5)
    plan = plan_leaders_by_load(fleet)
    assert sorted(loads_after(fleet, plan, 0).values()) == [10.0, 20.0, 20.0]


def test_followers_count_by_what_is_written() -> None:
    fleet = with_rates(hand_made(RACKS, {"t": [[1, 2, 3], [1], [2]]}), [5.0, 5.0, 7.0], [1.0, 2.0, 4.0])
    assert sent_bytes_per_s(fleet).tolist() == [11.0, 2.0, 4.0]


def test_two_brokers_exchange_what_is_too_large_to_be_given() -> None:
    fleet = hand_made({1: "a", 2: "b"}, {"t": [[1, 2], [1, 2], [2, 1], [2, 1]]})
    plan = plan_leaders_by_load(with_rates(fleet, [0.0] * 4, [60.0, 50.0, 20.0, 30.0]))
    after = loads_after(with_rates(fleet, [0.0] * 4, [60.0, 50.0, 20.0, 30.0]), plan, 0)
    assert max(after.values()) == 80.0


def test_nothing_changes_without_gain() -> None:
    fleet = with_rates(hand_made(RACKS, {"t": [[1, 2], [2, 3], [3, 1]]}), [0.0] * 3, [5.0] * 3)
    plan = plan_leaders_by_load(fleet)
    assert (len(plan), plan.kind) == (0, PlanKind.LEADERS_BY_LOAD)


def test_rates_that_are_not_known_are_refused() -> None:
    fleet = with_rates(hand_made(RACKS, {"t": [[1, 2], [2, 3]]}), [1.0, np.nan], [1.0, 1.0])
    with pytest.raises(IncompleteSnapshot, match="t-1"):
        plan_leaders_by_load(fleet)


def test_a_large_fleet_comes_near_its_mean() -> None:
    fleet = huge_fleet(brokers=30, replicas=30_000, topics=300)
    sent = sent_bytes_per_s(fleet)
    before, plan = led_load(fleet, sent), plan_leaders_by_load(fleet)
    after = loads_after(fleet, plan, 0)
    assert before.max() > 1.2 * before.mean()
    assert max(after.values()) <= 1.02 * before.mean()
