"""Reads the tiers of a running cluster from its brokers.

The brokers, topics and their configurations are required. Other facts that are not reported are `missing`.
The four offsets of a partition only grow, so they are read from the smallest to the largest: a change between
two requests cannot reverse their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound, RtolapError
from rtolap.fleet.snapshot.model import UNKNOWN, Int64s
from rtolap.fleet.tiers.view import MissingTier, PartitionTiers, TierView, TopicTiers
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    NO_BROKER,
    REMOTE_COPY_DISABLED,
    REMOTE_STORAGE,
    REMOTE_STORAGE_SYSTEM,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
    TopicDescription,
)

_TRUE = "true"
_AS_THE_WHOLE = -2  # of local.retention.*: as long as retention.* keeps it anywhere
_TOPIC_CONFIGS = (
    *(REMOTE_STORAGE, REMOTE_COPY_DISABLED, SEGMENT_BYTES),
    *(LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES, RETENTION_MS, RETENTION_BYTES),
)
_UPWARDS = (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED, OffsetSpec.LATEST)
_REASONS_MAX = 5


def collect_tiers(
    administration: FleetAdministration, clock: Clock, topics: Collection[str] | None = None
) -> TierView:
    """Ask for all topics, or for those named. Raises NotFound for one that is not there or may not be
    described."""
    return _Collection(administration).view(clock.now_ms(), topics)


class _Collection:
    def __init__(self, administration: FleetAdministration) -> None:
        self._administration = administration
        self._missing: list[MissingTier] = []

    def view(self, taken_at_ms: int, wanted: Collection[str] | None) -> TierView:
        cluster = self._administration.describe_cluster()
        alive = list(cluster.serving)
        enabled = self._tiering(alive)
        described = self._administration.describe_topics(wanted)
        for name in sorted(set(wanted or ()) - described.keys()):
            raise NotFound(f"there is no topic {name}, or it may not be described")
        topics = self._topics(sorted(described))
        partitions = self._partitions(topics, described)
        return TierView(
            cluster.cluster_id,
            taken_at_ms,
            tuple(broker for broker in alive if enabled.get(broker) is True),
            tuple(broker for broker in alive if enabled.get(broker) is False),
            topics,
            partitions,
            missing=tuple(self._missing),
        )

    def _tiering(self, brokers: Collection[int]) -> dict[int, bool]:
        """Tell by broker whether it tiers, of those that say so."""
        found: dict[int, bool] = {}
        for broker in brokers:
            resource = ConfigResource(ConfigKind.BROKER, str(broker))
            try:
                reported = self._administration.configs([resource], [REMOTE_STORAGE_SYSTEM], inherited=True)
            except RtolapError as error:
                fact = f"{REMOTE_STORAGE_SYSTEM} of broker {broker}"
                self._missing.append(MissingTier(fact, str(error)))
                continue
            found[broker] = reported.get(resource, {}).get(REMOTE_STORAGE_SYSTEM) == _TRUE
        return found

    def _topics(self, names: list[str]) -> TopicTiers:
        resources = [ConfigResource(ConfigKind.TOPIC, name) for name in names]
        reported = self._administration.configs(resources, _TOPIC_CONFIGS, inherited=True)
        configs = [reported.get(resource, {}) for resource in resources]
        return TopicTiers(
            tuple(names),
            np.array([config.get(REMOTE_STORAGE) == _TRUE for config in configs], np.bool_),
            np.array([config.get(REMOTE_COPY_DISABLED) != _TRUE for config in configs], np.bool_),
            np.array([int(config.get(SEGMENT_BYTES, UNKNOWN)) for config in configs], np.int64),
            np.array([_local(config, LOCAL_RETENTION_MS, RETENTION_MS) for config in configs], np.int64),
            np.array(
                [_local(config, LOCAL_RETENTION_BYTES, RETENTION_BYTES) for config in configs], np.int64
            ),
        )

    def _partitions(self, topics: TopicTiers, described: Mapping[str, TopicDescription]) -> PartitionTiers:
        rows = [
            (topic, partition)
            for topic in np.flatnonzero(topics.tiered).tolist()
            for partition in described[topics.names[topic]].partitions
        ]
        at = [Partition(topics.names[topic], partition.number) for topic, partition in rows]
        leaders = {
            known: partition.leader
            for known, (_, partition) in zip(at, rows, strict=True)
            if partition.leader != NO_BROKER
        }
        self._note("offsets", [(known, "it has no leader") for known in at if known not in leaders])
        earliest, earliest_local, last_copied, latest = (
            self._offsets(at, leaders, spec) for spec in _UPWARDS
        )
        hosts = {broker for _, partition in rows for broker in partition.replicas}
        leader_column = np.array([partition.leader for _, partition in rows], np.int32)
        local_bytes, replica_bytes = self._sizes(at, leaders, hosts)
        return PartitionTiers(
            np.array([topic for topic, _ in rows], np.int32),
            np.array([partition.number for _, partition in rows], np.int32),
            leader_column,
            earliest,
            earliest_local,
            self._copied_up_to(at, earliest, earliest_local, last_copied),
            latest,
            local_bytes,
            replica_bytes,
        )

    def _offsets(self, at: list[Partition], leaders: Mapping[Partition, int], spec: OffsetSpec) -> Int64s:
        reported = self._administration.list_offsets(leaders, spec) if leaders else {}
        refused = [(known, str(value)) for known, value in reported.items() if isinstance(value, RtolapError)]
        self._note(f"{spec.name.lower().replace('_', '-')} offsets", refused)
        values = (reported.get(known, UNKNOWN) for known in at)
        return np.array([value if isinstance(value, int) else UNKNOWN for value in values], np.int64)

    def _copied_up_to(
        self, at: list[Partition], earliest: Int64s, earliest_local: Int64s, last_copied: Int64s
    ) -> Int64s:
        """Return the offset up to which segments were copied. The last copied offset is -1 where nothing was
        copied, and where a new leader has not looked at remote storage yet. In that case the disks tell
        which it is, since only copied segments leave them. Records that were deleted by request may reach
        beyond the copied ones."""
        copied_up_to = np.maximum(last_copied + 1, earliest_local)
        not_looked = (last_copied == UNKNOWN) & (earliest_local > earliest)
        self._note(
            "what was copied",
            [
                (at[row], "its leader has not looked at remote storage yet")
                for row in np.flatnonzero(not_looked)
            ],
        )
        copied_up_to[not_looked | (earliest_local == UNKNOWN)] = UNKNOWN
        return copied_up_to

    def _sizes(
        self, at: list[Partition], leaders: Mapping[Partition, int], hosts: set[int]
    ) -> tuple[Int64s, Int64s]:
        """Return bytes at the leader, and at all replicas that tell them."""
        local = dict.fromkeys(at, UNKNOWN)
        total = dict.fromkeys(at, 0)
        reported = self._administration.describe_log_dirs(hosts, at) if at else {}
        for broker, of_broker in sorted(reported.items()):
            if of_broker.missing is not None:
                fact = f"bytes on the disks of broker {broker}"
                self._missing.append(MissingTier(fact, str(of_broker.missing)))
            for log_dir in of_broker.log_dirs:
                for hosted in log_dir.replicas:
                    if hosted.partition not in total:
                        continue
                    total[hosted.partition] += hosted.size_bytes
                    if not hosted.future and leaders.get(hosted.partition) == broker:
                        local[hosted.partition] = hosted.size_bytes
        return (
            np.array([local[known] for known in at], np.int64),
            np.array([total[known] for known in at], np.int64),
        )

    def _note(self, fact: str, reasons: Collection[tuple[Partition, str]]) -> None:
        """Note a line per reason, however many partitions have it."""
        by_reason: dict[str, list[Partition]] = {}
        for partition, reason in reasons:
            by_reason.setdefault(reason, []).append(partition)
        for reason, partitions in by_reason.items():
            named = ", ".join(map(str, partitions[:_REASONS_MAX]))
            more = len(partitions) - _REASONS_MAX
            self._missing.append(
                MissingTier(f"{fact} of {named}{f' and {more} more' if more > 0 else ''}", reason)
            )


def _local(config: Mapping[str, str], own: str, whole: str) -> int:
    value = int(config.get(own, _AS_THE_WHOLE))
    return int(config.get(whole, UNKNOWN)) if value == _AS_THE_WHOLE else value
