"""Placement rules drawn from a seed, and where they let topics stand, in plain sets."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.fleet import BrokerPool, FleetCluster, PlacementRule


def random_rules(seed: int, snapshot: FleetSnapshot) -> FleetCluster:
    """Return one to three pools of a third to nearly all of the brokers, some exclusive; rules for some
    topics."""
    rng = np.random.default_rng([seed, 25])
    ids = snapshot.brokers.ids
    pools: dict[str, BrokerPool] = {}
    rules: list[PlacementRule] = []
    for number in range(int(rng.integers(1, 4))):
        name = f"pool-{number}"
        count = max(1, int(rng.uniform(0.34, 0.95) * ids.size))
        own = sorted(rng.choice(ids, count, replace=False).tolist())
        pools[name] = BrokerPool(tuple(own), exclusive=bool(rng.random() < 0.3))
        topics = snapshot.topics.names
        matched = rng.choice(topics, max(1, len(topics) // 3), replace=False).tolist()
        also = rng.choice(ids, 1).tolist() if rng.random() < 0.5 else []
        rules.append(PlacementRule(tuple(sorted(matched)), (name,), tuple(also)))
    return FleetCluster(businesses=("shop",), pools=pools, placement=tuple(rules))


def may_stand(cluster: FleetCluster, snapshot: FleetSnapshot) -> dict[str, set[int]]:
    """Return brokers by topic, found topic by topic."""
    every = set(snapshot.brokers.ids.tolist())
    exclusive = {broker for pool in cluster.pools.values() if pool.exclusive for broker in pool.brokers}
    found: dict[str, set[int]] = {}
    for topic in snapshot.topics.names:
        found[topic] = every - exclusive
        for rule in cluster.placement:
            if any(fnmatchcase(topic, pattern) for pattern in rule.match):
                found[topic] = set(rule.brokers)
                for pool in rule.pools:
                    found[topic] |= set(cluster.pools[pool].brokers)
                break
    return found
