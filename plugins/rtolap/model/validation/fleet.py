"""The checks of the registry of a Kafka fleet. Pure; every problem with the way to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import combinations

from rtolap.model.fleet import BrokerPool, DeclaredQuota, FleetCluster, KafkaFleet, PlacementRule, TopicOwner
from rtolap.model.problems import Key, Problem, unknown_name
from rtolap.model.validation.definition import cluster_problems, duplicates
from rtolap.model.validation.names import name_problems

BROKER_ID_MAX = 2**31 - 1
RANGE_MAX = 10_000  # brokers of one range: larger is a slip of the pen
FACTOR_MAX = 32
RESERVE_PERCENT_MAX = 90
RESERVE_BROKERS_MAX = 100
SLOW_FOR_MS_MAX = 86_400_000
_PATTERN = re.compile(r"[a-zA-Z0-9._*?-]{1,249}")
_USER_OR_CLIENT_KEYS = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
)


def fleet_problems(fleet: KafkaFleet) -> tuple[Problem, ...]:
    found = name_problems(fleet.name, ("name",))
    if not fleet.clusters:
        found.append(Problem(("clusters",), "a fleet without clusters", expected="at least one"))
    for place, owner in enumerate(fleet.topics):
        found += _owner_problems(fleet, owner, ("topics", place))
    found += _hidden_problems([owner.match for owner in fleet.topics], ("topics",))
    for name, cluster in fleet.clusters.items():
        key: Key = ("clusters", name)
        found += _at(key, cluster_problems(name))
        if cluster.kafka_cluster is not None:
            found += _at((*key, "kafka_cluster"), cluster_problems(cluster.kafka_cluster))
        found += _business_problems(fleet, cluster, key)
        found += _cluster_problems(cluster, key)
    for (first, one), (second, other) in combinations(fleet.clusters.items(), 2):
        if (one.kafka_cluster or first) == (other.kafka_cluster or second):
            key = ("clusters", second, "kafka_cluster")
            found.append(Problem(key, f"it is that of {first} too", expected="a Kafka cluster of its own"))
        if one.cluster_id is not None and one.cluster_id == other.cluster_id:
            key = ("clusters", second, "cluster_id")
            found.append(Problem(key, f"it is that of {first} too", found=repr(other.cluster_id)))
    return tuple(found)


def _owner_problems(fleet: KafkaFleet, owner: TopicOwner, key: Key) -> list[Problem]:
    found = [
        *name_problems(owner.business, (*key, "business")),
        *_pattern_problems(owner.match, (*key, "match")),
    ]
    if any(cluster.takes(owner) for cluster in fleet.clusters.values()):
        return found
    known = sorted({business for cluster in fleet.clusters.values() for business in cluster.businesses})
    if owner.business in known:
        priorities = [c.priority for c in fleet.clusters.values() if owner.business in c.businesses]
        expected = f"one of {', '.join(sorted(set(priorities)))}, or none for any"
        at: Key = (*key, "priority")
        return [
            *found,
            Problem(at, f"no cluster of {owner.business} has this priority", expected, repr(owner.priority)),
        ]
    return [
        *found,
        unknown_name((*key, "business"), "no cluster takes its topics", owner.business, known),
    ]


def _business_problems(fleet: KafkaFleet, cluster: FleetCluster, key: Key) -> list[Problem]:
    known = sorted({owner.business for owner in fleet.topics})
    if not cluster.businesses:
        return [Problem((*key, "businesses"), "nobody's cluster", expected="whose topics it takes")]
    expected = "a business that `topics` names"
    return [
        unknown_name((*key, "businesses", place), "no topics belong to it", business, known, expected)
        for place, business in enumerate(cluster.businesses)
        if business not in known
    ]


def _cluster_problems(cluster: FleetCluster, key: Key) -> list[Problem]:
    found: list[Problem] = []
    factor, in_sync = cluster.replication_factor, cluster.min_in_sync
    found += _factor_problems(factor, in_sync, (*key, "replication_factor"), (*key, "min_in_sync"))
    found += _id_problems(cluster.controllers, (*key, "controllers"))
    for name, pool in cluster.pools.items():
        found += name_problems(name, (*key, "pools", name))
        found += _pool_problems(pool, (*key, "pools", name))
    if found:
        return found  # rules and roles below are about sound pools
    found += _shared_pool_problems(cluster, key)
    for place, rule in enumerate(cluster.placement):
        found += _rule_problems(cluster, rule, (*key, "placement", place))
    found += _hidden_problems([rule.match for rule in cluster.placement], (*key, "placement"))
    if cluster.roles == "separate":
        for place, node in enumerate(cluster.controllers):
            pooled = [name for name, pool in cluster.pools.items() if node in pool.ids]
            if pooled:
                at: Key = (*key, "controllers", place)
                message = f"a broker of pool {pooled[0]}, where roles are separate"
                found.append(Problem(at, message, expected="a node that is no broker", found=str(node)))
    for steps, value, least, most in (
        (("reserve", "disk_percent"), cluster.reserve.disk_percent, 0, RESERVE_PERCENT_MAX),
        (("reserve", "brokers"), cluster.reserve.brokers, 0, RESERVE_BROKERS_MAX),
        (("policy", "slow_for_ms"), cluster.policy.slow_for_ms, 0, SLOW_FOR_MS_MAX),
        (("policy", "out_of_service_max"), cluster.policy.out_of_service_max, 0, RESERVE_BROKERS_MAX),
    ):
        if not least <= value <= most:
            at = (*key, *steps)
            found.append(Problem(at, "out of bounds", expected=f"{least} to {most}", found=f"{value:g}"))
    for place, quota in enumerate(cluster.quotas):
        found += _quota_problems(quota, (*key, "quotas", place))
    entities = [quota.entity for quota in cluster.quotas]
    found += [
        Problem((*key, "quotas", place), "declared twice", expected="each entity once")
        for place, entity in enumerate(entities)
        if entity in entities[:place]
    ]
    return found


def _pool_problems(pool: BrokerPool, key: Key) -> list[Problem]:
    found = _id_problems(pool.brokers, (*key, "brokers"))
    for place, ids in enumerate(pool.ranges):
        if not 0 <= ids.first <= ids.last <= BROKER_ID_MAX or ids.last - ids.first >= RANGE_MAX:
            expected = f"first to last, from 0, at most {RANGE_MAX} brokers"
            found.append(
                Problem((*key, "ranges", place), "no range", expected, found=f"{ids.first} to {ids.last}")
            )
    if not pool.brokers and not pool.ranges:
        found.append(Problem(key, "an empty pool", expected="brokers or ranges of them"))
    return found


def _shared_pool_problems(cluster: FleetCluster, key: Key) -> list[Problem]:
    found = []
    for (first, one), (second, other) in combinations(cluster.pools.items(), 2):
        shared = one.ids & other.ids
        if shared and (one.exclusive or other.exclusive):
            exclusive = first if one.exclusive else second
            found.append(
                Problem(
                    (*key, "pools", second),
                    f"shares brokers with {first}, and {exclusive} is exclusive",
                    expected="no broker in two pools",
                    found=", ".join(map(str, sorted(shared)[:5])),
                )
            )
    return found


def _rule_problems(cluster: FleetCluster, rule: PlacementRule, key: Key) -> list[Problem]:
    found = _pattern_problems(rule.match, (*key, "match"))
    found += _id_problems(rule.brokers, (*key, "brokers"))
    expected = "" if cluster.pools else "one of none: declare pools first"
    found += [
        unknown_name((*key, "pools", place), "no such pool", pool, cluster.pools, expected)
        for place, pool in enumerate(rule.pools)
        if pool not in cluster.pools
    ]
    factor = cluster.replication_factor if rule.replication_factor is None else rule.replication_factor
    in_sync = cluster.min_in_sync if rule.min_in_sync is None else rule.min_in_sync
    factor_key = key if rule.replication_factor is None else (*key, "replication_factor")
    in_sync_key = key if rule.min_in_sync is None else (*key, "min_in_sync")
    found += _factor_problems(factor, in_sync, factor_key, in_sync_key)
    if not found and (rule.pools or rule.brokers):
        allowed = {*rule.brokers, *(broker for pool in rule.pools for broker in cluster.pools[pool].ids)}
        if len(allowed) < factor:
            found.append(
                Problem(
                    factor_key,
                    "more replicas than brokers",
                    expected=f"at most {len(allowed)}, or more brokers",
                    found=str(factor),
                )
            )
    return found


def _factor_problems(factor: int, in_sync: int, factor_key: Key, in_sync_key: Key) -> list[Problem]:
    found = []
    if not 1 <= factor <= FACTOR_MAX:
        expected = f"1 to {FACTOR_MAX}"
        found.append(Problem(factor_key, "out of bounds", expected=expected, found=str(factor)))
    elif not 1 <= in_sync <= max(1, factor - 1):
        found.append(
            Problem(
                in_sync_key,
                "nobody could write while one broker restarts" if in_sync >= factor else "out of bounds",
                expected=f"min_in_sync of 1 to {max(1, factor - 1)}, with {factor} replicas",
                found=str(in_sync),
            )
        )
    return found


def _quota_problems(quota: DeclaredQuota, key: Key) -> Iterator[Problem]:
    if not quota.entity:
        yield Problem(key, "a quota of nobody", expected="user, client_id, both, or ip")
    if quota.ip is not None and (quota.user is not None or quota.client_id is not None):
        yield Problem((*key, "ip"), "not beside user and client_id", expected="ip alone")
    if not quota.rates:
        yield Problem(key, "a quota without a rate", expected="such as producer_byte_rate")
    for name, value in quota.rates.items():
        wrong = _USER_OR_CLIENT_KEYS if quota.ip is not None else ("connection_creation_rate",)
        if name in wrong:
            whose = "an ip" if quota.ip is not None else "a user or client_id"
            yield Problem((*key, name), f"not a rate of {whose}", found=name)
        elif not (math.isfinite(value) and value > 0):
            yield Problem((*key, name), "out of bounds", expected="more than 0", found=f"{value:g}")


def _pattern_problems(patterns: tuple[str, ...], key: Key) -> list[Problem]:
    if not patterns:
        return [Problem(key, "matches no topic", expected="at least one pattern")]
    expected = "letters, digits, '.', '_', '-' and the signs * and ?"
    return [
        Problem((*key, place), "not a pattern of topics", expected=expected, found=repr(pattern))
        for place, pattern in enumerate(patterns)
        if not _PATTERN.fullmatch(pattern)
    ]


def _hidden_problems(patterns: list[tuple[str, ...]], key: Key) -> Iterator[Problem]:
    """Return a problem for each pattern behind `*`, or behind itself, since it decides nothing."""
    seen: set[str] = set()
    for place, alternatives in enumerate(patterns):
        for position, pattern in enumerate(alternatives):
            if pattern in seen or "*" in seen:
                message = "never decides: what it matches is matched before"
                at: Key = (*key, place, "match", position)
                yield Problem(at, message, expected="narrow patterns first", found=repr(pattern))
            seen.add(pattern)


def _id_problems(ids: tuple[int, ...], key: Key) -> list[Problem]:
    found = [
        Problem((*key, place), "no node's id", expected=f"0 to {BROKER_ID_MAX}", found=str(node))
        for place, node in enumerate(ids)
        if not 0 <= node <= BROKER_ID_MAX
    ]
    return found + [Problem(key, "named twice", found=node) for node in duplicates(map(str, ids))]


def _at(key: Key, problems: Iterable[Problem]) -> list[Problem]:
    return [Problem(key, each.message, each.expected, each.found, each.hint) for each in problems]
