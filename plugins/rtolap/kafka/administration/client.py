"""The administration of a real cluster, in Kafka's own requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeClientQuotasRequest, DescribeClusterRequest

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError
from rtolap.kafka.administration import answers, requests
from rtolap.kafka.administration.connection import AdministrationConnection
from rtolap.kafka.administration.errors import of_code, raised
from rtolap.kafka.administration.interface import Outcomes
from rtolap.kafka.administration.requests import UnregisterBrokerRequest
from rtolap.kafka.administration.usage_client import KafkaUsage
from rtolap.kafka.administration.values import (
    NO_BROKER,
    BrokerLogDirs,
    ClientQuota,
    ClusterDescription,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
    Replica,
    RunningReassignment,
    TopicDescription,
)
from rtolap.kafka.clusters import KafkaCluster

_CONFIGS_A_REQUEST = 1000
_NOT_REGISTERED = kafka_errors.BrokerIdNotRegisteredError.errno
_DESCRIBE, _ALTER = "Describe on the cluster", "Alter on the cluster"
_DESCRIBE_TOPICS = "Describe on the topics"
_DESCRIBE_CONFIGS = "DescribeConfigs on the topics and the cluster"
_ALTER_CONFIGS = "AlterConfigs on the topics and the cluster"


class KafkaAdministration(KafkaUsage):
    """The implementation of `interface.FleetAdministration` that a cluster answers."""

    def __init__(self, cluster: KafkaCluster, client_id: str = "rtolap-fleet") -> None:
        super().__init__(cluster, AdministrationConnection(cluster, client_id))

    def describe_cluster(self) -> ClusterDescription:
        answer = self._connection.ask(
            lambda: DescribeClusterRequest(include_fenced_brokers=True),
            "describe the cluster",
            _DESCRIBE,
            failed=_top_level,
        )
        return ClusterDescription(answer.cluster_id, self._controller(), answers.brokers(answer))

    def _controller(self) -> int:
        """Return the controller. A broker names any broker as the controller; the metadata quorum knows its
        leader."""
        try:
            answer = self._connection.ask(
                requests.quorum, "describe the quorum", _DESCRIBE, failed=_top_level
            )
        except (Forbidden, Refused):
            return NO_BROKER
        return int(answer.topics[0].partitions[0].leader_id)

    def describe_topics(self, topics: Collection[str] | None = None) -> dict[str, TopicDescription]:
        if topics is not None and not topics:
            return {}
        answer = self._connection.ask(lambda: requests.metadata(topics), "describe topics", _DESCRIBE_TOPICS)
        return {topic.name: answers.topic(topic) for topic in answer.topics if topic.partitions}

    def describe_log_dirs(
        self, brokers: Collection[int], partitions: Collection[Partition] | None = None
    ) -> dict[int, BrokerLogDirs]:
        attempt = "describe log directories"
        request = partial(requests.log_dirs, partitions)
        responses = self._connection.ask_each(dict.fromkeys(sorted(brokers), request), attempt, _DESCRIBE)
        return {broker: self._log_dirs(broker, answer, attempt) for broker, answer in responses.items()}

    def _log_dirs(self, broker: int, answer: Any, attempt: str) -> BrokerLogDirs:
        if isinstance(answer, RtolapError):
            return BrokerLogDirs(broker, missing=answer)
        refused = self._error(getattr(answer, "error_code", 0) or 0, None, attempt, _DESCRIBE)
        if refused is not None:
            return BrokerLogDirs(broker, missing=refused)
        return BrokerLogDirs(broker, answers.log_dirs(answer))

    def list_offsets(
        self, leaders: Mapping[Partition, int], spec: OffsetSpec
    ) -> dict[Partition, int | RtolapError]:
        request, at_once = partial(requests.offsets, spec=spec), max(len(leaders), 1)
        return self._of_leaders(
            *(leaders, at_once, request), "list offsets", _DESCRIBE_TOPICS, lambda answer: int(answer.offset)
        )

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> Outcomes:
        if not targets:
            return {}
        attempt = "reassign partitions"
        answer = self._connection.ask(
            lambda: requests.reassignments(targets), attempt, _ALTER, failed=_top_level
        )
        outcomes: Outcomes = {}
        for topic, partition in answers.each_partition(answer.responses):
            code = partition.error_code
            if code == kafka_errors.NoReassignmentInProgressError.errno:
                continue  # to cancel what does not run
            error = self._error(code, partition.error_message, attempt, _ALTER)
            if error is not None:
                outcomes[Partition(topic, partition.partition_index)] = error
        return outcomes

    def running_reassignments(
        self, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, RunningReassignment]:
        if partitions is not None and not partitions:
            return {}
        answer = self._connection.ask(
            lambda: requests.running_reassignments(partitions),
            "list reassignments",
            _DESCRIBE,
            failed=_top_level,
        )
        return answers.running_reassignments(answer)

    def move_log_dirs(self, paths: Mapping[Replica, str]) -> dict[Replica, RtolapError]:
        by_broker: dict[int, dict[str, list[Partition]]] = defaultdict(lambda: defaultdict(list))
        for replica, path in paths.items():
            by_broker[replica.broker][path].append(replica.partition)
        attempt = "move replicas between log directories"
        responses = self._connection.ask_each(
            {broker: partial(requests.log_dir_moves, moved) for broker, moved in by_broker.items()},
            attempt,
            _ALTER,
        )
        refused: dict[Replica, RtolapError] = {}
        for broker, answer in responses.items():
            if isinstance(answer, RtolapError):
                refused |= {replica: answer for replica in paths if replica.broker == broker}
                continue
            for topic in answer.results:
                for partition in topic.partitions:
                    error = self._error(partition.error_code, None, attempt, _ALTER)
                    if error is not None:
                        at = Partition(topic.topic_name, partition.partition_index)
                        refused[Replica(at, broker)] = error
        return refused

    def configs(
        self, resources: Collection[ConfigResource], names: Collection[str], *, inherited: bool = False
    ) -> dict[ConfigResource, dict[str, str]]:
        attempt = "describe configs"
        anywhere = sorted(known for known in resources if known.kind is ConfigKind.TOPIC or not known.name)
        responses = [
            self._connection.ask(partial(requests.configs, batch, names), attempt, _DESCRIBE_CONFIGS)
            for batch in _batches(anywhere)
        ]
        own = {int(known.name): known for known in set(resources) - set(anywhere)}
        of_brokers = self._connection.ask_each(
            {broker: partial(requests.configs, [known], names) for broker, known in own.items()},
            attempt,
            _DESCRIBE_CONFIGS,
        )
        found: dict[ConfigResource, dict[str, str]] = {}
        for answer in (*responses, *of_brokers.values()):
            if isinstance(answer, RtolapError):
                raise answer
            for result in answer.results:
                error = self._error(result.error_code, result.error_message, attempt, _DESCRIBE_CONFIGS)
                if isinstance(error, NotFound):
                    continue
                if error is not None:
                    raise error
                resource = requests.resource_of(result)
                found[resource] = {
                    config.name: config.value
                    for config in result.configs
                    if config.value is not None
                    and (inherited or config.config_source == answers.own_source(resource))
                }
        return found

    def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> dict[ConfigResource, RtolapError]:
        attempt = "alter configs"
        anywhere = {
            resource: values
            for resource, values in changes.items()
            if resource.kind is ConfigKind.TOPIC or not resource.name
        }
        own = {int(known.name): {known: values} for known, values in changes.items() if known not in anywhere}
        responses: list[Any] = []
        if anywhere:
            responses.append(
                self._connection.ask(lambda: requests.config_changes(anywhere), attempt, _ALTER_CONFIGS)
            )
        of_brokers = self._connection.ask_each(
            {broker: partial(requests.config_changes, known) for broker, known in own.items()},
            attempt,
            _ALTER_CONFIGS,
        )
        refused: dict[ConfigResource, RtolapError] = {}
        for broker, answer in of_brokers.items():
            if isinstance(answer, RtolapError):
                refused[ConfigResource(ConfigKind.BROKER, str(broker))] = answer
            else:
                responses.append(answer)
        for answer in responses:
            for result in answer.responses:
                error = self._error(result.error_code, result.error_message, attempt, _ALTER_CONFIGS)
                if error is not None:
                    refused[requests.resource_of(result)] = error
        return refused

    def elect_preferred_leaders(self, partitions: Collection[Partition]) -> Outcomes:
        if not partitions:
            return {}
        attempt = "elect preferred leaders"
        answer = self._connection.ask(
            lambda: requests.elections(partitions), attempt, _ALTER, failed=_top_level
        )
        outcomes: Outcomes = {}
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                if result.error_code == kafka_errors.ElectionNotNeededError.errno:
                    continue
                error = self._error(result.error_code, result.error_message, attempt, _ALTER)
                if error is not None:
                    outcomes[Partition(topic.topic, result.partition_id)] = error
        return outcomes

    def client_quotas(self) -> tuple[ClientQuota, ...]:
        answer = self._connection.ask(
            lambda: DescribeClientQuotasRequest(components=[], strict=False),
            "describe client quotas",
            "DescribeConfigs on the cluster",
            failed=_top_level,
        )
        return answers.client_quotas(answer)

    def alter_client_quotas(
        self, changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]
    ) -> None:
        attempt, right = "alter client quotas", "AlterConfigs on the cluster"
        answer = self._connection.ask(lambda: requests.quota_changes(changes), attempt, right)
        for entry in answer.entries:
            error = self._error(entry.error_code, entry.error_message, attempt, right)
            if error is not None:
                raise error

    def unregister_broker(self, broker: int) -> None:
        self._connection.ask(
            lambda: UnregisterBrokerRequest(broker_id=broker),
            f"unregister broker {broker}",
            _ALTER,
            failed=lambda answer: None if answer.error_code == _NOT_REGISTERED else _top_level(answer),
        )

    def close(self) -> None:
        self._connection.close()

    def _error(self, code: int, message: str | None, attempt: str, right: str) -> RtolapError | None:
        return of_code(code, message, attempt, right, self.cluster)


def _top_level(answer: Any) -> Exception | None:
    if not answer.error_code:
        return None
    return raised(answer.error_code, getattr(answer, "error_message", None))


def _batches(resources: Sequence[ConfigResource]) -> Iterator[Sequence[ConfigResource]]:
    for start in range(0, len(resources), _CONFIGS_A_REQUEST):
        yield resources[start : start + _CONFIGS_A_REQUEST]
