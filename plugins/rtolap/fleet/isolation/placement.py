"""Placement rules: where replicas of each topic may stand, how many there are to be, and how far apart.

Algorithm: every topic takes the first placement rule of its cluster that matches it. A rule allows the
brokers that it names and those of its pools. Without either, as without a rule, a topic may stand on every
broker that is in no exclusive pool. Rules are few, so brokers are kept by rule and rules by topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.planning.placement import AllowedBrokers
from rtolap.fleet.snapshot.model import BrokerState, Flags, FleetSnapshot, Int32s
from rtolap.model.fleet import FleetCluster, PlacementRule, first_matches

NO_RACK = -1


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """Rules of the topics of a snapshot.

    Attributes:
        rules: For each topic, a row of `allowed_by_rule`.
        allowed_by_rule: Rules by brokers of the snapshot.
        factors: Declared replication factor of each topic.
        min_in_sync: Declared minimum of replicas in sync of each topic.
        spread: The topic's replicas have to be in different racks.
    """

    rules: Int32s
    allowed_by_rule: Flags
    factors: Int32s
    min_in_sync: Int32s
    spread: Flags

    @property
    def allowed(self) -> Flags:
        """Return by topic and broker whether replicas of the one may stand on the other."""
        return self.allowed_by_rule[self.rules]

    @property
    def allowed_brokers(self) -> AllowedBrokers:
        """Return the same as planners take it."""
        return AllowedBrokers(self.rules, self.allowed_by_rule)


def placement_rules(cluster: FleetCluster, snapshot: FleetSnapshot) -> PlacementRules:
    rules = (*cluster.placement, PlacementRule(match=()))  # the last is that of topics without a rule
    matched = first_matches(snapshot.topics.names, [rule.match for rule in cluster.placement])
    of_topic = np.array([len(rules) - 1 if rule is None else rule for rule in matched], np.int32)
    factors = np.array(
        [
            cluster.replication_factor if rule.replication_factor is None else rule.replication_factor
            for rule in rules
        ],
        np.int32,
    )
    in_sync = np.array(
        [cluster.min_in_sync if rule.min_in_sync is None else rule.min_in_sync for rule in rules], np.int32
    )
    spread = np.array([(rule.racks or cluster.racks) == "spread" for rule in rules], np.bool_)
    return PlacementRules(
        rules=of_topic,
        allowed_by_rule=np.stack([_allowed(cluster, rule, snapshot.brokers.ids) for rule in rules]),
        factors=factors[of_topic],
        min_in_sync=in_sync[of_topic],
        spread=spread[of_topic],
    )


def _allowed(cluster: FleetCluster, rule: PlacementRule, broker_ids: Int32s) -> Flags:
    if rule.pools or rule.brokers:
        named = set(rule.brokers).union(*(cluster.pools[pool].ids for pool in rule.pools))
        return np.isin(broker_ids, sorted(named))
    exclusive = set().union(*(pool.ids for pool in cluster.pools.values() if pool.exclusive))
    return ~np.isin(broker_ids, sorted(exclusive))


def rack_codes(snapshot: FleetSnapshot) -> tuple[Int32s, tuple[str, ...]]:
    """Return a number of each broker's rack, `NO_RACK` where it has none, and the racks by number."""
    racks = tuple(sorted({rack for rack in snapshot.brokers.racks if rack is not None}))
    numbers = {rack: number for number, rack in enumerate(racks)}
    codes = [NO_RACK if rack is None else numbers[rack] for rack in snapshot.brokers.racks]
    return np.array(codes, np.int32), racks


def racks_within_reach(placement: PlacementRules, snapshot: FleetSnapshot) -> Int32s:
    """Return for each topic the number of racks that have a broker where it may stand."""
    codes, racks = rack_codes(snapshot)
    there = snapshot.brokers.states != BrokerState.ABSENT
    by_rule = np.zeros((len(placement.allowed_by_rule), len(racks)), np.bool_)
    for rule, allowed in enumerate(placement.allowed_by_rule):
        by_rule[rule, codes[allowed & there & (codes != NO_RACK)]] = True
    counts: Int32s = by_rule.sum(axis=1).astype(np.int32)
    return counts[placement.rules]
