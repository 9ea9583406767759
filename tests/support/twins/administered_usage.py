"""The twin of groups and producers: what a `MemoryCluster` was told that there are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, Unavailable
from rtolap.kafka.administration.interface import (
    STREAMS_GROUP,
    ActiveProducer,
    GroupMember,
    ListedGroup,
    ListedGroups,
)
from rtolap.kafka.administration.values import Partition

from tests.support.twins.administered_cluster import MemoryCluster


class MemoryUsage:
    """Implements `interface.UsageAdministration` on a `MemoryCluster`. As brokers do, it refuses what is
    forbidden to each group and partition by itself."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def list_groups(self, brokers: Collection[int]) -> ListedGroups:
        refused = self._forbidden("list_groups")
        if refused is not None:
            return ListedGroups((), (refused,))
        silent = [broker for broker in sorted(brokers) if not self._answers(broker)]
        return ListedGroups(
            tuple(
                known.listed
                for _, known in sorted(self._cluster.groups.items())
                if known.listed.coordinator in brokers and known.listed.coordinator not in silent
            ),
            tuple(Unavailable(f"broker {broker} does not answer") for broker in silent),
        )

    def describe_groups(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, tuple[GroupMember, ...] | RtolapError]:
        found: dict[str, tuple[GroupMember, ...] | RtolapError] = {}
        for asked in groups:
            known = self._cluster.groups.get(asked.group)
            if asked.kind == STREAMS_GROUP:
                found[asked.group] = Refused(
                    "brokers do not describe the members of streams groups to this client"
                )
            else:
                refused = self._forbidden("describe_groups")
                found[asked.group] = refused or (known.members if known is not None else ())
        return found

    def committed_offsets(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, dict[Partition, int] | RtolapError]:
        found: dict[str, dict[Partition, int] | RtolapError] = {}
        for asked in groups:
            known = self._cluster.groups.get(asked.group)
            refused = self._forbidden("committed_offsets")
            found[asked.group] = refused or (dict(known.committed) if known is not None else {})
        return found

    def active_producers(
        self, leaders: Mapping[Partition, int]
    ) -> dict[Partition, tuple[ActiveProducer, ...] | RtolapError]:
        return {partition: self._producers(partition, broker) for partition, broker in leaders.items()}

    def _producers(self, partition: Partition, broker: int) -> tuple[ActiveProducer, ...] | RtolapError:
        known = self._cluster.partitions.get(partition)
        if not self._answers(broker):
            return Unavailable(f"broker {broker} does not answer")
        if known is None:
            return NotFound(f"cannot describe producers of {partition}: it is not there")
        if known.leader != broker:
            return Unavailable(f"broker {broker} does not lead {partition} any more")
        return self._forbidden("active_producers") or self._cluster.producers.get(partition, ())

    def _answers(self, broker_id: int) -> bool:
        broker = self._cluster.brokers.get(broker_id)
        return self._cluster.answers and broker is not None and broker.alive

    def _forbidden(self, call: str) -> Forbidden | None:
        if call in self._cluster.forbidden:
            return Forbidden(f"User:memory may not {call}", expected="the right for it")
        return None
