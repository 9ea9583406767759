"""Groups and producers of a real cluster, in Kafka's own requests: to all coordinators, or leaders, at once,
each with as many groups, or partitions, as one request may name."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolType

from rtolap.base.errors import Corrupted, Refused, RtolapError, Unavailable
from rtolap.kafka.administration import answers, requests
from rtolap.kafka.administration.errors import of_code, raised, translated
from rtolap.kafka.administration.interface import (
    CONSUMER_GROUP,
    SHARE_GROUP,
    STREAMS_GROUP,
    ActiveProducer,
    GroupMember,
    ListedGroup,
    ListedGroups,
)
from rtolap.kafka.administration.requests import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from rtolap.kafka.administration.rights_client import KafkaRights
from rtolap.kafka.administration.values import Partition, Right

_GROUPS_A_REQUEST = 100  # an answer holds all that each of them has committed
_PARTITIONS_A_REQUEST = 1000
_OFFSETS_OF_MANY, _OFFSETS_BY_NAME = 8, 9  # OffsetFetch: the versions for many groups, and with topics' names
_GONE = (kafka_errors.GroupIdNotFoundError.errno,)
_LIST, _CLUSTER = "list all groups", "Describe on the cluster"
_MEMBERS, _OFFSETS, _GROUPS = "describe groups", "fetch committed offsets", "Describe on the groups"
_TOPICS = "Read on the topics"

T = TypeVar("T")
K = TypeVar("K", str, Partition)


class KafkaUsage(KafkaRights):
    """The implementation of `interface.UsageAdministration`."""

    def list_groups(self, brokers: Collection[int]) -> ListedGroups:
        responses = self._connection.ask_each(
            dict.fromkeys(sorted(brokers), ListGroupsRequest), _LIST, _CLUSTER
        )
        groups: list[ListedGroup] = []
        missing: list[RtolapError] = []
        for broker, answer in responses.items():
            refused = self._refused(answer, _LIST, _CLUSTER)
            if refused is not None:
                missing.append(refused)
                continue
            groups += [
                ListedGroup(
                    group.group_id,
                    str(getattr(group, "group_type", "") or "").lower(),
                    str(getattr(group, "group_state", "") or ""),
                    broker,
                )
                for group in answer.groups
            ]
        return ListedGroups(tuple(sorted(groups, key=lambda known: known.group)), (*missing, *self._hidden()))

    def _hidden(self) -> Iterator[RtolapError]:
        """Yield the errors of hidden groups. Brokers silently leave out groups that may not be described, but
        they report rights."""
        if self.missing_rights([Right.DESCRIBE]):
            yield translated(_LIST, _CLUSTER, kafka_errors.ClusterAuthorizationFailedError(), self.cluster)

    def describe_groups(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, tuple[GroupMember, ...] | RtolapError]:
        found: dict[str, tuple[GroupMember, ...] | RtolapError] = {
            known.group: Refused("brokers do not describe the members of streams groups to this client")
            for known in groups
            if known.kind == STREAMS_GROUP
        }
        nobody: tuple[GroupMember, ...] = ()
        newer = (CONSUMER_GROUP, SHARE_GROUP, STREAMS_GROUP)
        for group_ids, request, members in (
            ([known for known in groups if known.kind not in newer], _classic_groups, _classic_members),
            ([known for known in groups if known.kind == CONSUMER_GROUP], _consumer_groups, _members),
            ([known for known in groups if known.kind == SHARE_GROUP], _share_groups, _members),
        ):
            found |= self._of_coordinators(group_ids, request, _MEMBERS, members, nobody)
        return found

    def committed_offsets(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, dict[Partition, int] | RtolapError]:
        found: dict[str, dict[Partition, int] | RtolapError] = {}
        nothing: dict[Partition, int] = {}
        for group_ids, request, offsets in (
            ([known for known in groups if known.kind != SHARE_GROUP], _committed_offsets, _committed),
            ([known for known in groups if known.kind == SHARE_GROUP], _share_offsets, _share_starts),
        ):
            found |= self._of_coordinators(group_ids, request, _OFFSETS, offsets, nothing)
        return found

    def active_producers(
        self, leaders: Mapping[Partition, int]
    ) -> dict[Partition, tuple[ActiveProducer, ...] | RtolapError]:
        return self._of_leaders(
            *(leaders, _PARTITIONS_A_REQUEST, requests.producers), "describe producers", _TOPICS, _producers
        )

    def _of_leaders(
        self,
        leaders: Mapping[Partition, int],
        size: int,
        request: Callable[[list[Partition]], Any],
        attempt: str,
        right: str,
        read: Callable[[Any], T],
    ) -> dict[Partition, T | RtolapError]:
        """Return what `read` finds in the answers of leaders, `size` partitions a request, or the error that
        stands for it."""

        def one(at: Partition, answer: Any) -> T | RtolapError:
            if answer.error_code == kafka_errors.NotLeaderForPartitionError.errno:
                return Unavailable(f"broker {leaders[at]} does not lead {at} any more", action="retry")
            message = getattr(answer, "error_message", None)
            error = of_code(answer.error_code, message, attempt, right, self.cluster)
            return read(answer) if error is None else error

        found: dict[Partition, T | RtolapError] = {}
        for led, answer in self._in_rounds(leaders.items(), size, request, attempt, right):
            if isinstance(answer, RtolapError):
                found |= dict.fromkeys(led, answer)
                continue
            for topic, partition in answers.each_partition(answer.topics):
                at = Partition(topic, partition.partition_index)
                found[at] = one(at, partition)
        return found

    def _of_coordinators(
        self,
        groups: Sequence[ListedGroup],
        request: Callable[[list[str]], Any],
        attempt: str,
        read: Callable[[Any], T],
        of_a_gone_one: T,
    ) -> dict[str, T | RtolapError]:
        """Return what `read` finds in the answers of coordinators, or the error that stands for it."""
        found: dict[str, T | RtolapError] = {}
        asked = [(known.group, known.coordinator) for known in groups]
        for ids, answer in self._in_rounds(asked, _GROUPS_A_REQUEST, request, attempt, _GROUPS):
            if isinstance(answer, RtolapError):
                found |= dict.fromkeys(ids, answer)
                continue
            for group in answer.groups:
                found[group.group_id] = self._of_group(group, attempt, read, of_a_gone_one)
        return found

    def _in_rounds(
        self,
        asked: Iterable[tuple[K, int]],
        size: int,
        request: Callable[[list[K]], Any],
        attempt: str,
        right: str,
    ) -> Iterator[tuple[list[K], Any]]:
        """Ask brokers of what is named with their ids, of `size` at a time. Yield the names of each request
        with its answer, or the RtolapError that stands for it."""
        by_broker: dict[int, list[K]] = defaultdict(list)
        for name, broker in sorted(asked):
            by_broker[broker].append(name)
        longest = max(map(len, by_broker.values()), default=0)
        for start in range(0, longest, size):
            batch = {
                broker: names[start : start + size] for broker, names in by_broker.items() if names[start:]
            }
            told = {broker: partial(request, names) for broker, names in batch.items()}
            responses = self._connection.ask_each(told, attempt, right)
            yield from ((batch[broker], answer) for broker, answer in responses.items())

    def _of_group(
        self, group: Any, attempt: str, read: Callable[[Any], T], of_a_gone_one: T
    ) -> T | RtolapError:
        if group.error_code in _GONE:
            return of_a_gone_one
        message = getattr(group, "error_message", None)
        error = of_code(group.error_code, message, attempt, _GROUPS, self.cluster)
        if error is not None:
            return error
        try:
            return read(group)
        except kafka_errors.KafkaError as refused:
            return translated(attempt, _GROUPS, refused, self.cluster)
        except (struct.error, ValueError) as broken:
            return Corrupted(f"the assignment of group {group.group_id} cannot be read", found=str(broken))

    def _refused(self, answer: Any, attempt: str, right: str) -> RtolapError | None:
        if isinstance(answer, RtolapError):
            return answer
        return of_code(answer.error_code, None, attempt, right, self.cluster)


def _classic_groups(ids: list[str]) -> Any:
    return DescribeGroupsRequest(groups=ids)


def _consumer_groups(ids: list[str]) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=ids)


def _share_groups(ids: list[str]) -> Any:
    return ShareGroupDescribeRequest(group_ids=ids)


def _committed_offsets(ids: list[str]) -> Any:
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[kind(group_id=group, topics=None) for group in ids],
        min_version=_OFFSETS_OF_MANY,
        max_version=_OFFSETS_BY_NAME,
    )


def _share_offsets(ids: list[str]) -> Any:
    kind = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[kind(group_id=group, topics=None) for group in ids])


def _classic_members(group: Any) -> tuple[GroupMember, ...]:
    """Return the members of a classic group. A group of another protocol than the consumers', as Kafka
    Connect's, is assigned no partitions."""
    reads = group.protocol_type == ConsumerProtocolType
    found = []
    for member in group.members:
        assigned: tuple[Partition, ...] = ()
        if reads and member.member_assignment:
            assignment = ConsumerProtocolAssignment.decode(member.member_assignment)
            assigned = tuple(
                Partition(of_topic.topic, number)
                for of_topic in assignment.assigned_partitions
                for number in of_topic.partitions
            )
        found.append(GroupMember(member.client_id, _host(member.client_host), assigned))
    return tuple(found)


def _members(group: Any) -> tuple[GroupMember, ...]:
    return tuple(
        GroupMember(
            member.client_id,
            _host(member.client_host),
            tuple(
                Partition(of_topic.topic_name, number)
                for of_topic in member.assignment.topic_partitions
                for number in of_topic.partitions
            ),
        )
        for member in group.members
    )


def _host(host: str) -> str:
    """Return the host of an address that Kafka writes as Java does: host/address, often without the host."""
    return host.rpartition("/")[2]


def _committed(group: Any) -> dict[Partition, int]:
    """Return committed offsets. Raises the error of a partition."""
    return {
        Partition(topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
        if _is_known(partition, partition.committed_offset)
    }


def _share_starts(group: Any) -> dict[Partition, int]:
    """Return the starts of a share group. Raises the error of a partition."""
    return {
        Partition(topic.topic_name, partition.partition_index): partition.start_offset
        for topic in group.topics
        for partition in topic.partitions
        if _is_known(partition, partition.start_offset)
    }


def _is_known(partition: Any, offset: int) -> bool:
    if partition.error_code:
        raise raised(partition.error_code, getattr(partition, "error_message", None))
    return offset >= 0


def _producers(answer: Any) -> tuple[ActiveProducer, ...]:
    return tuple(
        ActiveProducer(producer.producer_id, producer.last_timestamp, producer.current_txn_start_offset)
        for producer in answer.active_producers
    )
