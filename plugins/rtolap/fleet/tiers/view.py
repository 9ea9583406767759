"""The tiered topics of a cluster at one moment, in columns, and where copying to remote storage is behind.

Tables name each other's rows, as in a snapshot. `UNKNOWN` (-1) stands for what was not told; `missing` says
of what, and why.

Brokers tell offsets and the bytes on their disks. The bytes of what is local only are estimated: the share of
its offsets in the local bytes. A closed segment has at most `segment.bytes`, and the active one, which is not
copied, too; so what is local only holds at least estimate / segment.bytes - 1 closed segments. Where segments
are closed by time they are smaller, and there are more: then brokers' agents, which count them after each
round of copying, tell more than the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from rtolap.fleet.snapshot.model import UNKNOWN, Flags, Int32s, Int64s, Table

UNLIMITED = -1
SEGMENTS_BEHIND = 2
"""The number of closed segments of a partition, not copied, that is a lag: one is copied at any time."""


class Tier(IntEnum):
    """The places of a tiered partition's records, in the order of their offsets."""

    REMOTE_ONLY = 0
    LOCAL_AND_REMOTE = 1
    LOCAL_ONLY = 2


@dataclass(frozen=True, eq=False)
class TopicTiers(Table):
    """Topics by name, including those that are not tiered.

    Attributes:
        tiered: `remote.storage.enable`.
        copied: Closed segments are copied, which `remote.log.copy.disable` stops.
        local_retention_ms: Time for which a disk retains copied segments, or `UNLIMITED`.
        local_retention_bytes: Bytes of copied segments that a disk retains, or `UNLIMITED`.
    """

    names: tuple[str, ...]
    tiered: Flags
    copied: Flags
    segment_bytes: Int64s
    local_retention_ms: Int64s
    local_retention_bytes: Int64s


@dataclass(frozen=True, eq=False)
class PartitionTiers(Table):
    """Partitions of tiered topics, by topic and number.

    Attributes:
        topics: Rows of topics.
        leaders: Ids of brokers.
        earliest: Offset that Kafka reports; so are earliest_local and latest.
        copied_up_to: First offset that is not in remote storage. `UNKNOWN` also where a leader has not
            checked yet.
        local_bytes: Bytes on the leader's disk.
        replica_bytes: Bytes on the disks of all replicas.
    """

    topics: Int32s
    numbers: Int32s
    leaders: Int32s
    earliest: Int64s
    earliest_local: Int64s
    copied_up_to: Int64s
    latest: Int64s
    local_bytes: Int64s
    replica_bytes: Int64s

    @cached_property
    def bounds(self) -> Int64s:
        """Return the offsets, partitions × 4: tier t of a partition is from column t up to column t + 1. All
        are `UNKNOWN` where one is."""
        columns = np.stack((self.earliest, self.earliest_local, self.copied_up_to, self.latest), axis=1)
        columns[(columns == UNKNOWN).any(axis=1)] = UNKNOWN
        return columns

    def offsets(self, tier: Tier) -> Int64s:
        """Count the offsets of each partition that are in the tier; `UNKNOWN` where its bounds are."""
        counts = self.bounds[:, tier + 1] - self.bounds[:, tier]
        return np.where(self.bounds[:, 0] == UNKNOWN, UNKNOWN, counts)


@dataclass(frozen=True, eq=False)
class CopyReadings(Table):
    """Figures of brokers' agents about the partitions that each leads, by topic and broker.

    Brokers update them when a round of copying has ended or failed. During a round that a quota delays, the
    former figures stay.

    Attributes:
        topics: Rows of topics.
        lag_segments: Closed segments that are not copied yet.
        lag_bytes: Bytes of those segments.
        remote_bytes: Bytes in remote storage.
        errors: Failed copies since the broker's start.
    """

    topics: Int32s
    brokers: Int32s
    lag_segments: Int64s
    lag_bytes: Int64s
    remote_bytes: Int64s
    errors: Int64s


_NO_ROWS, _NO_COUNTS = np.empty(0, np.int32), np.empty(0, np.int64)
NO_READINGS = CopyReadings(_NO_ROWS, _NO_ROWS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS)


@dataclass(frozen=True)
class MissingTier:
    """A fact that was not reported, and why."""

    fact: str
    reason: str


@dataclass(frozen=True, eq=False)
class TierView:
    """The tiers of a cluster.

    Attributes:
        tiering: Ids of brokers with `remote.log.storage.system.enable`.
        not_tiering: Ids of brokers without it.
    """

    cluster_id: str
    taken_at_ms: int
    tiering: tuple[int, ...]
    not_tiering: tuple[int, ...]
    topics: TopicTiers
    partitions: PartitionTiers
    copies: CopyReadings = NO_READINGS
    missing: tuple[MissingTier, ...] = ()


def known_sum(values: Int64s) -> int:
    """Return the sum, or `UNKNOWN` where one of them is."""
    return UNKNOWN if (values == UNKNOWN).any() else int(values.sum())


def uncopied_bytes(view: TierView) -> Int64s:
    """Return the approximate local-only bytes of each partition; `UNKNOWN` without offsets or bytes."""
    partitions = view.partitions
    local_only = partitions.offsets(Tier.LOCAL_ONLY)
    all_offsets = local_only + partitions.offsets(Tier.LOCAL_AND_REMOTE)
    unknown = (local_only == UNKNOWN) | (partitions.local_bytes == UNKNOWN)
    estimate = partitions.local_bytes * (local_only / np.maximum(all_offsets, 1))
    return np.where(unknown, UNKNOWN, np.round(estimate).astype(np.int64))


def segments_behind(view: TierView) -> Int64s:
    """Return a lower bound of the closed segments of each partition that are not copied; `UNKNOWN` as
    above.
    """
    uncopied = uncopied_bytes(view)
    segment_bytes = np.maximum(view.topics.segment_bytes[view.partitions.topics], 1)
    behind = np.maximum(-(-uncopied // segment_bytes) - 1, 0)
    return np.where(uncopied == UNKNOWN, UNKNOWN, behind)


def lagging(view: TierView, segments: int = SEGMENTS_BEHIND) -> Flags:
    """Return the partitions whose copying is behind by as many closed segments, or more.

    Where an agent counts as many for each partition of the topic that its broker leads, and no estimate names
    one of them, the one with most that is not copied is named. A topic whose copying is off never lags.
    """
    partitions = view.partitions
    found = segments_behind(view) >= segments
    uncopied = uncopied_bytes(view)
    for topic, broker, counted in zip(
        view.copies.topics, view.copies.brokers, view.copies.lag_segments, strict=True
    ):
        led = np.flatnonzero((partitions.topics == topic) & (partitions.leaders == broker))
        if len(led) and counted >= segments * len(led) and not found[led].any():
            found[led[np.argmax(uncopied[led])]] = True
    return np.asarray(found & view.topics.copied[partitions.topics], np.bool_)
