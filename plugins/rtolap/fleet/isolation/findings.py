"""Findings of an audit: one value for each difference between what is declared and what is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from rtolap.fleet.snapshot.model import Int64s, Snapshot


class Severity(StrEnum):
    """CRITICAL: one broker or rack less, and somebody cannot write or loses data. WARNING: what is declared
    does not hold. INFO: worth knowing."""

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
    """A consumer group that reads a topic. kind, state: in Kafka's words. members: those that read it now,
    None where that is not told; clients: their ids and hosts. assigned, committed: partitions that they read,
    and of which the group has committed an offset. lag_records: between those and the end of the log, None
    where an end is not known."""

    group: str
    kind: str
    state: str
    members: int | None
    clients: tuple[str, ...]
    assigned: tuple[int, ...]
    committed: tuple[int, ...]
    lag_records: int | None


class ProducerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The producers that a partition remembers. last_written_ms: of the one that wrote last.
    open_transactions: how many of them are within one."""

    partition: int
    producers: int
    last_written_ms: int
    open_transactions: int


class TopicUsers(msgspec.Struct, frozen=True, kw_only=True):
    """Readers and writers of a topic. groups, producers: None where brokers were not asked, or told nothing.
    declared: our own, as in "loader flights reads"."""

    groups: tuple[GroupUse, ...] | None = None
    producers: tuple[ProducerUse, ...] | None = None
    declared: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """subject: the topic, broker, log directory, pool, entity or definition that it is about. partitions: of
    the topic, where it is about some of them; brokers: that have part in it. repair: the command, or what to
    do. users: of a topic that is to leave."""

    cluster: str
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
    """findings: in the order of clusters, and in each the most severe first. unchecked: what could not be
    looked at, and why."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()


SEVERITIES = tuple(Severity)


def by_topic(snapshot: Snapshot, partitions: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yield each topic, as a row, that has some of these rows of partitions, which are sorted, with them."""
    if len(partitions):
        topics = snapshot.partitions.topics[partitions]
        for rows in np.split(partitions, np.flatnonzero(np.diff(topics)) + 1):
            yield int(snapshot.partitions.topics[rows[0]]), rows


def numbers_of(snapshot: Snapshot, partitions: Int64s) -> tuple[int, ...]:
    return tuple(snapshot.partitions.numbers[partitions].tolist())


def some(values: Sequence[object], most: int = 5) -> str:
    """Return the first of them in words, and how many others there are."""
    text = ", ".join(map(str, values[:most]))
    return text if len(values) <= most else f"{text} and {len(values) - most} others"
