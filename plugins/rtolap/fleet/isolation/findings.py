"""Findings of an audit: one value for each difference between what is declared and what is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from rtolap.fleet.snapshot.model import FleetSnapshot, Int64s


class Severity(StrEnum):
    """The severity of a finding.

    Attributes:
        CRITICAL: The loss of one more broker or rack stops writes or loses data.
        WARNING: The cluster differs from its declaration.
        INFO: Worth knowing.
    """

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingKind(StrEnum):
    WRONG_CLUSTER = "wrong_cluster"
    CLIENT_IN_WRONG_CLUSTER = "client_in_wrong_cluster"
    NO_OWNER = "no_owner"
    COMBINED_ROLES = "combined_roles"
    ABSENT_BROKER = "absent_broker"
    NO_BROKER_ALLOWED = "no_broker_allowed"
    PLACEMENT = "placement"
    REPLICATION_FACTOR = "replication_factor"
    MIN_IN_SYNC = "min_in_sync"
    NOT_WRITABLE = "not_writable"
    NO_RACK = "no_rack"
    SHARED_RACK = "shared_rack"
    RACK_LOSS = "rack_loss"
    DISK_RESERVE = "disk_reserve"
    BROKER_RESERVE = "broker_reserve"
    QUOTA = "quota"


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group that reads a topic.

    Attributes:
        kind: Type of the group, in Kafka's words.
        state: State of the group, in Kafka's words.
        members: Members that read the topic now. None where that was not reported.
        clients: Ids and hosts of those members.
        assigned: Partitions that the members read.
        committed: Partitions of which the group has committed an offset.
        lag_records: Records between those offsets and the end of the log. None where an end is not known.
    """

    group: str
    kind: str
    state: str
    members: int | None
    clients: tuple[str, ...]
    assigned: tuple[int, ...]
    committed: tuple[int, ...]
    lag_records: int | None


class ProducerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The producers that a partition remembers.

    Attributes:
        last_written_ms: Time of the last write.
        open_transactions: Number of producers within a transaction.
    """

    partition: int
    producers: int
    last_written_ms: int
    open_transactions: int


class TopicUsers(msgspec.Struct, frozen=True, kw_only=True):
    """Readers and writers of a topic.

    Attributes:
        groups: None where brokers were not queried, or did not report them.
        producers: None where brokers were not queried, or did not report them.
        declared: Declared users of rtolap itself, such as "loader flights reads".
    """

    groups: tuple[GroupUse, ...] | None = None
    producers: tuple[ProducerUse, ...] | None = None
    declared: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between the registry and a cluster.

    Attributes:
        cluster: Whose, which the audit says.
        subject: The topic, broker, log directory, pool, entity or definition.
        partitions: Partitions of the topic. Empty for all of them.
        brokers: Brokers that take part.
        repair: The command, or what to do.
        users: Users of a topic that has to leave the cluster. None for other findings.
    """

    cluster: str = ""
    kind: FindingKind
    severity: Severity
    subject: str
    message: str
    expected: str
    found: str
    repair: str
    partitions: tuple[int, ...] = ()
    brokers: tuple[int, ...] = ()
    users: TopicUsers | None = None


class Audit(msgspec.Struct, frozen=True):
    """The result of an audit.

    Attributes:
        findings: In the order of clusters, and by severity within each.
        unchecked: Facts that could not be checked, and why.
    """

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()


SEVERITIES = tuple(Severity)


def by_topic(snapshot: FleetSnapshot, partitions: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yield each topic, as a row, that has some of these rows of partitions, which are sorted, with them."""
    if len(partitions):
        topics = snapshot.partitions.topics[partitions]
        for rows in np.split(partitions, np.flatnonzero(np.diff(topics)) + 1):
            yield int(snapshot.partitions.topics[rows[0]]), rows


def numbers_of(snapshot: FleetSnapshot, partitions: Int64s) -> tuple[int, ...]:
    return tuple(snapshot.partitions.numbers[partitions].tolist())


def some(values: Sequence[object], most: int = 5) -> str:
    """Return the first of them in words, and how many others there are."""
    text = ", ".join(map(str, values[:most]))
    return text if len(values) <= most else f"{text} and {len(values) - most} others"
