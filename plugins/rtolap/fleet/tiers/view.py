"""The tiered topics of a cluster at one moment, in columns, as in a snapshot: tables name each other's rows.

`UNKNOWN` (-1) stands for what was not told; `missing` says of what, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from rtolap.fleet.snapshot.model import UNKNOWN, Flags, Int32s, Int64s

UNLIMITED = -1


class Tier(IntEnum):
    """Where records of a tiered partition are; in the order of their offsets."""

    REMOTE_ONLY = 0
    LOCAL_AND_REMOTE = 1
    LOCAL_ONLY = 2


@dataclass(frozen=True, eq=False)
class TopicTiers:
    """By name, those that are not tiered too. tiered: `remote.storage.enable`. copied: closed segments are
    copied, unless `remote.log.copy.disable`. local_retention_ms, local_retention_bytes: for how much a disk
    keeps what was copied, or `UNLIMITED`."""

    names: tuple[str, ...]
    tiered: Flags
    copied: Flags
    segment_bytes: Int64s
    local_retention_ms: Int64s
    local_retention_bytes: Int64s

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class PartitionTiers:
    """Of the tiered topics alone, by topic and number. topics: rows. leaders: broker ids.

    earliest, earliest_local, latest: offsets as Kafka tells them. copied_up_to: the first offset that is not
    in remote storage; `UNKNOWN` too where a leader has not looked there yet. local_bytes: on the leader's
    disk. replica_bytes: on the disks of all replicas.
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

    def __len__(self) -> int:
        return len(self.topics)

    @cached_property
    def bounds(self) -> Int64s:
        """Offsets, partitions × 4: tier t of a partition is from column t up to column t + 1. All are
        `UNKNOWN` where one is."""
        columns = np.stack((self.earliest, self.earliest_local, self.copied_up_to, self.latest), axis=1)
        columns[(columns == UNKNOWN).any(axis=1)] = UNKNOWN
        return columns

    def offsets(self, tier: Tier) -> Int64s:
        """How many offsets of each partition are in the tier; `UNKNOWN` where its bounds are."""
        counts = self.bounds[:, tier + 1] - self.bounds[:, tier]
        return np.where(self.bounds[:, 0] == UNKNOWN, UNKNOWN, counts)


@dataclass(frozen=True, eq=False)
class CopyReadings:
    """What the brokers' agents tell of the partitions that each leads, by topic and broker. topics: rows.

    lag_segments, lag_bytes: closed, and not copied yet. remote_bytes: in remote storage. errors: failed
    copies since the broker's start. Brokers count all of it when a round of copying has ended or failed: in
    one that a quota holds up it stands as before.
    """

    topics: Int32s
    brokers: Int32s
    lag_segments: Int64s
    lag_bytes: Int64s
    remote_bytes: Int64s
    errors: Int64s

    def __len__(self) -> int:
        return len(self.topics)


_NO_ROWS, _NO_COUNTS = np.empty(0, np.int32), np.empty(0, np.int64)
NO_READINGS = CopyReadings(_NO_ROWS, _NO_ROWS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS)


@dataclass(frozen=True)
class MissingTier:
    """A fact that was not told, and why."""

    fact: str
    reason: str


@dataclass(frozen=True, eq=False)
class TierView:
    """tiering, not_tiering: ids of brokers with `remote.log.storage.system.enable`, and without."""

    cluster_id: str
    taken_at_ms: int
    tiering: tuple[int, ...]
    not_tiering: tuple[int, ...]
    topics: TopicTiers
    partitions: PartitionTiers
    copies: CopyReadings = NO_READINGS
    missing: tuple[MissingTier, ...] = ()


def known_sum(values: Int64s) -> int:
    """The sum, or `UNKNOWN` where one of them is."""
    return UNKNOWN if (values == UNKNOWN).any() else int(values.sum())
