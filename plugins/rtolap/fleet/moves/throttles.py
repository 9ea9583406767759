"""Throttles on the copies of a plan: rates for the whole plan, replicas by move, all of it removed at the
end.

Rates are set for all brokers at once, so that they can be removed although brokers are gone. A broker with a
rate of its own keeps it. The throttled replicas are listed in the configuration of their topics: the former
ones send, the new ones receive. Replicas in sync are never throttled, but what leaders send them counts
against the rate. A replica that has fallen out of sync is throttled like a copy. So only replicas of active
moves are listed: from before Kafka is asked for the move until it has ended.

The former settings are stored before anything is set. Entries that somebody else listed, before or meanwhile,
stay, and so does a rate that somebody else has set meanwhile. A rate may change as long as moves run; every
value that the plan has ever meant to set counts as its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from rtolap.base.errors import NotFound, RtolapError
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import Throttle
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    ConfigKind,
    ConfigResource,
)

RATES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
HALT_BYTES_PER_S = 1000
_ALL = "*"

Lists = dict[str, dict[str, list[str]]]
"""Entries by topic and setting."""


def plan_throttle(
    administration: FleetAdministration, moves: Sequence[PlannedMove], rate_bytes_per_s: int
) -> Throttle:
    """Return the rates that will be set, and the present settings. The caller stores them before
    `set_throttle`.
    """
    topics = [ConfigResource(ConfigKind.TOPIC, topic) for topic in listed_replicas(moves)]
    found = administration.configs([*topics, ALL_BROKERS], [*RATES, *LISTS])
    rates = dict.fromkeys(RATES, str(rate_bytes_per_s))
    former_lists = {topic.name: found[topic] for topic in topics if found.get(topic)}
    return Throttle(rates, former_rates=found.get(ALL_BROKERS, {}), former_lists=former_lists)


def is_halted(throttle: Throttle | None) -> bool:
    return throttle is not None and set(throttle.rates.values()) == {str(HALT_BYTES_PER_S)}


def changed_throttle(
    administration: FleetAdministration,
    moves: Sequence[PlannedMove],
    throttle: Throttle | None,
    rate_bytes_per_s: int | None,
) -> Throttle | None:
    """Return the throttle that replaces this one. The caller stores it before `set_throttle`.

    The former settings are never read again, because the present ones may be the plan's own.
    """
    if throttle is None:
        return None if rate_bytes_per_s is None else plan_throttle(administration, moves, rate_bytes_per_s)
    rates = {} if rate_bytes_per_s is None else dict.fromkeys(RATES, str(rate_bytes_per_s))
    ours = tuple(dict.fromkeys((*throttle.earlier_values, *throttle.rates.values())))
    return msgspec.structs.replace(throttle, rates=rates, earlier_values=ours, is_set=False)


def listed_moves(
    throttle: Throttle, moves: Sequence[PlannedMove], under_way: Collection[int]
) -> tuple[int, ...]:
    """Return the numbers of active moves whose replicas topics have to list."""
    return tuple(sorted(number for number in under_way if moves[number].adding)) if throttle.rates else ()


def set_throttle(
    administration: FleetAdministration,
    moves: Sequence[PlannedMove],
    throttle: Throttle,
    numbers: tuple[int, ...],
) -> Throttle:
    """List the replicas of these moves and of no others, and set the rates where they are not in force.

    Returns the throttle that is in force then, which the caller stores. Raises the first refusal. Deleted
    topics need no throttle.
    """
    if not throttle.rates:
        remove_throttle(administration, moves, throttle)
        return msgspec.structs.replace(throttle, listed=(), is_set=True)
    changing = {moves[number].topic for number in set(throttle.listed) ^ set(numbers)}
    ours = listed_replicas([moves[number] for number in sorted({*throttle.listed, *numbers})])
    wanted = listed_replicas([moves[number] for number in numbers])
    topics = [ConfigResource(ConfigKind.TOPIC, topic) for topic in ours if topic in changing]
    found = administration.configs(topics, LISTS) if topics else {}
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    if not throttle.is_set:
        changes[ALL_BROKERS] = dict(throttle.rates)
    for topic in topics:
        values = _lists_with(
            found.get(topic, {}), ours[topic.name], wanted.get(topic.name, {}), throttle, topic
        )
        if values:
            changes[topic] = values
    if changes:
        _raise_first(administration.alter_configs(changes))
    return msgspec.structs.replace(throttle, listed=numbers, is_set=True)


def remove_throttle(
    administration: FleetAdministration, moves: Sequence[PlannedMove], throttle: Throttle
) -> None:
    """Remove the throttle, and leave what others have set. It may be repeated.

    Entries that were listed last are removed even if they are not found, because the broker that answers may
    not know them yet.
    """
    listed = listed_replicas(moves)
    last_listed = {moves[number].topic for number in throttle.listed}
    topics = [ConfigResource(ConfigKind.TOPIC, topic) for topic in listed]
    found = administration.configs([*topics, ALL_BROKERS], [*RATES, *LISTS])
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    values_of_ours = {*throttle.rates.values(), *throttle.earlier_values}
    rates = {
        name: throttle.former_rates.get(name)
        for name, value in found.get(ALL_BROKERS, {}).items()
        if name in RATES and value in values_of_ours and throttle.former_rates.get(name) != value
    }
    if rates:
        changes[ALL_BROKERS] = rates
    for topic in topics:
        now = found.get(topic, {})
        values = {
            name: value
            for name, value in _lists_with(now, listed[topic.name], {}, throttle, topic).items()
            if topic.name in last_listed or _entries(value) != _entries(now.get(name))
        }
        if values:
            changes[topic] = values
    if changes:
        _raise_first(administration.alter_configs(changes))


def _lists_with(
    found: Mapping[str, str],
    ours: Mapping[str, list[str]],
    wanted: Mapping[str, list[str]],
    throttle: Throttle,
    topic: ConfigResource,
) -> dict[str, str | None]:
    """Return the lists of a topic: entries of others, and the wanted ones of ours. A list of all replicas
    stays.
    """
    values: dict[str, str | None] = {}
    for name in LISTS:
        now = _entries(found.get(name))
        if _ALL in now:
            continue
        former = set(_entries(throttle.former_lists.get(topic.name, {}).get(name)))
        of_plan = set(ours[name]) - former
        theirs = [entry for entry in now if entry not in of_plan]
        added = [entry for entry in wanted.get(name, ()) if entry not in theirs]
        values[name] = ",".join([*theirs, *added]) or None
    return values


def listed_replicas(moves: Sequence[PlannedMove]) -> Lists:
    """Return the replicas of moves between brokers: former ones, which send, and new ones, which receive."""
    listed: Lists = defaultdict(lambda: {name: [] for name in LISTS})
    for move in moves:
        if move.adding:
            entries = listed[move.topic]
            entries[LEADER_REPLICAS] += [f"{move.number}:{broker}" for broker in move.before]
            entries[FOLLOWER_REPLICAS] += [f"{move.number}:{broker}" for broker in move.adding]
    return dict(listed)


def _entries(value: str | None) -> list[str]:
    return [entry.strip() for entry in (value or "").split(",") if entry.strip()]


def _raise_first(refused: Mapping[ConfigResource, RtolapError]) -> None:
    for error in refused.values():
        if not isinstance(error, NotFound):
            raise error
