"""Users of the topics of a running cluster: consumer groups with their lag, and partitions with their
producers.

Brokers are asked in bulk: all of them for their groups, then each coordinator for what its groups have
committed and for the members of those that may have some, then the leaders for ends and producers. What is
not told is missing, with the reason, never an error; groups that are refused for one reason are named
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from rtolap.base.errors import RtolapError
from rtolap.fleet.isolation.findings import GroupUse, ProducerUse, TopicUsers, some
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot
from rtolap.kafka.administration.interface import (
    NO_TRANSACTION,
    STREAMS_GROUP,
    ActiveProducer,
    FleetAdministration,
    GroupMember,
    ListedGroup,
    ListedGroups,
)
from rtolap.kafka.administration.values import OffsetSpec, Partition

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class CollectedUsers:
    """The users that brokers have reported.

    Attributes:
        users: By topic.
        missing: Facts that were not reported, and why.
    """

    users: dict[str, TopicUsers]
    missing: tuple[str, ...] = ()


def collect_users(
    administration: FleetAdministration, snapshot: FleetSnapshot, topics: Sequence[str]
) -> CollectedUsers:
    """Return the users of these topics of a snapshot. Without topics, no broker is queried."""
    if not topics:
        return CollectedUsers({})
    missing: list[str] = []
    leaders = _leaders(snapshot, topics, missing)
    attempts = _Attempts(administration, missing)
    alive = snapshot.brokers.ids[snapshot.brokers.states == BrokerState.ALIVE].tolist()
    listed = attempts.of(lambda: administration.list_groups(alive), "consumer groups", ListedGroups(()))
    missing += [f"consumer groups ({reason})" for reason in listed.missing]
    groups = {known.group: known for known in listed.groups}
    wanted = frozenset(topics)
    committed = attempts.of_each(
        lambda: administration.committed_offsets(listed.groups), "committed offsets of groups"
    )
    committed = {group: _of_topics(offsets, wanted) for group, offsets in committed.items()}
    with_members = [
        known for known in listed.groups if known.may_have_members and known.kind != STREAMS_GROUP
    ]
    members = attempts.of_each(lambda: administration.describe_groups(with_members), "members of groups")
    read = {at: leaders[at] for offsets in committed.values() for at in offsets if at in leaders}
    ends = attempts.of_each(
        lambda: administration.list_offsets(read, OffsetSpec.LATEST) if read else {}, "ends of partitions"
    )
    producers = attempts.of_each(lambda: administration.active_producers(leaders), "producers of partitions")
    users = {
        topic: TopicUsers(
            groups=tuple(
                use
                for _, known in sorted(groups.items())
                if (use := _group_use(topic, known, committed, members, ends)) is not None
            ),
            producers=_producer_uses(topic, producers),
        )
        for topic in topics
    }
    return CollectedUsers(users, tuple(missing))


def _leaders(snapshot: FleetSnapshot, topics: Iterable[str], missing: list[str]) -> dict[Partition, int]:
    """Return the leader of each partition; those without one are missing."""
    rows = {name: row for row, name in enumerate(snapshot.topics.names)}
    found: dict[Partition, int] = {}
    without: list[Partition] = []
    for topic in topics:
        for row in np.flatnonzero(snapshot.partitions.topics == rows[topic]).tolist():
            at = Partition(topic, int(snapshot.partitions.numbers[row]))
            leader = int(snapshot.partitions.leaders[row])
            if leader == UNKNOWN:
                without.append(at)
            else:
                found[at] = int(snapshot.brokers.ids[leader])
    if without:
        missing.append(f"producers and lag of {some(without)} (they have no leader)")
    return found


@dataclass(frozen=True)
class _Attempts:
    administration: FleetAdministration
    missing: list[str] = field(default_factory=list)

    def of(self, ask: Callable[[], T], what: str, otherwise: T) -> T:
        try:
            return ask()
        except RtolapError as error:
            self.missing.append(f"{what} ({error})")
            return otherwise

    def of_each(self, ask: Callable[[], Mapping[K, T | RtolapError]], what: str) -> dict[K, T]:
        nothing: Mapping[K, T | RtolapError] = {}
        found: dict[K, T] = {}
        refused: dict[str, list[K]] = defaultdict(list)
        for key, value in self.of(ask, what, nothing).items():
            if isinstance(value, RtolapError):
                refused[str(value)].append(key)
            else:
                found[key] = value
        self.missing.extend(f"{what} {some(keys)} ({reason})" for reason, keys in refused.items())
        return found


def _of_topics(offsets: Mapping[Partition, int], topics: frozenset[str]) -> dict[Partition, int]:
    return {at: offset for at, offset in offsets.items() if at.topic in topics}


def _group_use(
    topic: str,
    known: ListedGroup,
    committed: Mapping[str, Mapping[Partition, int]],
    members: Mapping[str, tuple[GroupMember, ...]],
    ends: Mapping[Partition, int],
) -> GroupUse | None:
    """Return the use of the topic by a group; None if the group does not read it."""
    offsets = {at: offset for at, offset in committed.get(known.group, {}).items() if at.topic == topic}
    readers = [
        member for member in members.get(known.group, ()) if any(at.topic == topic for at in member.assigned)
    ]
    if not offsets and not readers:
        return None
    is_reported = not known.may_have_members or known.group in members
    return GroupUse(
        group=known.group,
        kind=known.kind,
        state=known.state,
        members=len(readers) if is_reported else None,
        clients=tuple(sorted({f"{member.client_id} at {member.host}" for member in readers})),
        assigned=_numbers(topic, (at for member in readers for at in member.assigned)),
        committed=_numbers(topic, offsets),
        lag_records=sum(max(0, ends[at] - offset) for at, offset in offsets.items())
        if offsets and all(at in ends for at in offsets)
        else None,
    )


def _numbers(topic: str, partitions: Iterable[Partition]) -> tuple[int, ...]:
    return tuple(sorted({at.number for at in partitions if at.topic == topic}))


def _producer_uses(
    topic: str, producers: Mapping[Partition, tuple[ActiveProducer, ...]]
) -> tuple[ProducerUse, ...] | None:
    """Return the producers of the topic; None if brokers reported them for no partition."""
    of_topic = {at: known for at, known in sorted(producers.items()) if at.topic == topic}
    if not of_topic:
        return None
    return tuple(
        ProducerUse(
            partition=at.number,
            producers=len(known),
            last_written_ms=max(each.last_written_ms for each in known),
            open_transactions=sum(each.transaction_start != NO_TRANSACTION for each in known),
        )
        for at, known in of_topic.items()
        if known
    )
