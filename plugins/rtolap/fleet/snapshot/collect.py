"""A snapshot of a running cluster, by what its brokers say of it.

Brokers are asked one after the other what is where, so a snapshot is a moment only as far as the cluster
stands still; a partition that has changed meanwhile has replicas of unknown size, and `missing` says so.
What no broker tells is missing too, never an error, except for who is in the cluster and what it holds:
without that there is no snapshot. The protocol of administration tells no rates; brokers' metrics do, where
somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from rtolap.base.clock import Clock
from rtolap.base.errors import RtolapError
from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    Brokers,
    BrokerState,
    FleetSnapshot,
    LogDirs,
    MissingFact,
    Partitions,
    Quota,
    Replicas,
    ReplicaState,
    Topics,
)
from rtolap.fleet.snapshot.rates import FORBIDDEN_WITHOUT_RATES, RateReader, read_rates
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.kafka.administration.values import (
    MIN_IN_SYNC,
    BrokerLogDirs,
    ClientQuota,
    ClusterDescription,
    ConfigKind,
    ConfigResource,
    Partition,
    RunningReassignment,
    TopicDescription,
)

# decisions, in the words of plans
_BY_SIZE = ("disks", "drain", "add", "remove-disk", "rack", "factor", "placement")
_ALL = (*_BY_SIZE, "leaders", *FORBIDDEN_WITHOUT_RATES)

T = TypeVar("T")


def collect_snapshot(
    administration: FleetAdministration, clock: Clock, rates: RateReader | None = None
) -> FleetSnapshot:
    """Take a snapshot. Raises what `interface` says where brokers do not give the facts that a plan needs."""
    return _Collection(administration, rates).snapshot(clock.now_ms())


class _Collection:
    def __init__(self, administration: FleetAdministration, rates: RateReader | None) -> None:
        self._administration = administration
        self._rates = rates
        self._missing: list[MissingFact] = []

    def snapshot(self, taken_at_ms: int) -> FleetSnapshot:
        cluster = self._administration.describe_cluster()
        described = self._administration.describe_topics()
        topics = [described[name] for name in sorted(described)]
        # right after the topics: what is asked for in between lets reassignments end
        running: dict[Partition, RunningReassignment] = self._read_fact(
            "running reassignments", _ALL, self._administration.running_reassignments, {}
        )
        brokers = _brokers(cluster, topics)
        dirs = self._log_dirs(cluster)
        log_dirs, rows = _log_dirs(brokers, dirs)
        partitions = _partitions(brokers, topics)
        replicas = _replicas(brokers, topics, rows, dirs, running, partitions)
        self._note_sizes(
            brokers, replicas, {reported.broker_id for reported in dirs if reported.missing is not None}
        )
        topic_table = self._topics(topics)
        rates = read_rates(self._rates, brokers, topic_table, partitions, replicas)
        self._missing += rates.missing
        partitions = replace(
            partitions, bytes_in_per_s=rates.bytes_in_per_s, bytes_out_per_s=rates.bytes_out_per_s
        )
        snapshot = FleetSnapshot(
            cluster.cluster_id,
            taken_at_ms,
            cluster.controller,
            brokers,
            log_dirs,
            topic_table,
            partitions,
            replicas,
            self._quotas(),
            tuple(self._missing),
        )
        snapshot.check()
        return snapshot

    def _read_fact(self, fact: str, forbids: tuple[str, ...], ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except RtolapError as error:
            self._missing.append(MissingFact(fact, str(error), forbids))
            return otherwise

    def _log_dirs(self, cluster: ClusterDescription) -> list[BrokerLogDirs]:
        reported = self._administration.describe_log_dirs(list(cluster.serving))
        for broker_id, of_broker in sorted(reported.items()):
            if of_broker.missing is not None:
                self._missing.append(
                    MissingFact(f"log directories of broker {broker_id}", str(of_broker.missing), _BY_SIZE)
                )
        return [reported[broker_id] for broker_id in sorted(reported)]

    def _topics(self, topics: list[TopicDescription]) -> Topics:
        resources = [ConfigResource(ConfigKind.TOPIC, topic.name) for topic in topics]
        values: dict[ConfigResource, dict[str, str]] = self._read_fact(
            f"{MIN_IN_SYNC} of topics",
            (),
            lambda: self._administration.configs(resources, [MIN_IN_SYNC], inherited=True),
            {},
        )
        least = [int(values.get(resource, {}).get(MIN_IN_SYNC, UNKNOWN)) for resource in resources]
        return Topics(
            tuple(topic.name for topic in topics),
            np.array(least, np.int32),
            np.array([topic.internal for topic in topics], np.bool_),
        )

    def _quotas(self) -> tuple[Quota, ...]:
        quotas: tuple[ClientQuota, ...] = self._read_fact(
            "client quotas", (), self._administration.client_quotas, ()
        )
        return tuple(
            Quota(quota.entity, key, value) for quota in quotas for key, value in sorted(quota.values.items())
        )

    def _note_sizes(self, brokers: Brokers, replicas: Replicas, silent: set[int]) -> None:
        """Leave out brokers that do not answer at all: `missing` names them already."""
        unknown = replicas.log_dirs == UNKNOWN
        for row in np.unique(replicas.brokers[unknown]):
            broker_id = int(brokers.ids[row])
            if broker_id in silent:
                continue
            number = int((unknown & (replicas.brokers == row)).sum())
            if brokers.states[row] == BrokerState.ALIVE:
                reason = "its log directories do not hold them: offline, or made or removed meanwhile"
            else:
                reason = "it does not serve"
            fact = f"sizes of {number} replicas at broker {broker_id}"
            self._missing.append(MissingFact(fact, reason, ()))


def _brokers(cluster: ClusterDescription, topics: Iterable[TopicDescription]) -> Brokers:
    known = {broker.broker_id: broker for broker in cluster.brokers}
    named = {broker for topic in topics for partition in topic.partitions for broker in partition.replicas}
    ids = sorted(known.keys() | named)
    states = []
    for broker_id in ids:
        broker = known.get(broker_id)
        if broker is None:
            states.append(BrokerState.ABSENT)
        else:
            states.append(BrokerState.FENCED if broker.fenced else BrokerState.ALIVE)
    described = [known.get(broker_id) for broker_id in ids]
    return Brokers(
        np.array(ids, np.int32),
        tuple(broker.host if broker else "" for broker in described),
        np.array([broker.port if broker else UNKNOWN for broker in described], np.int32),
        tuple(broker.rack if broker else None for broker in described),
        np.array(states, np.int8),
    )


def _log_dirs(
    brokers: Brokers, reported: Iterable[BrokerLogDirs]
) -> tuple[LogDirs, dict[tuple[int, str], int]]:
    """Return the log directories, and the row of each by broker id and path."""
    found = [
        (of_broker.broker_id, log_dir)
        for of_broker in reported
        for log_dir in sorted(of_broker.log_dirs, key=lambda log_dir: log_dir.path)
    ]
    row_of = {int(broker_id): row for row, broker_id in enumerate(brokers.ids)}
    # a broker may have registered after the cluster was described
    found = [(broker_id, log_dir) for broker_id, log_dir in found if broker_id in row_of]
    table = LogDirs(
        np.array([row_of[broker_id] for broker_id, _ in found], np.int32),
        tuple(log_dir.path for _, log_dir in found),
        np.array([_known(log_dir.total_bytes) for _, log_dir in found], np.int64),
        np.array([_known(log_dir.usable_bytes) for _, log_dir in found], np.int64),
        np.array([log_dir.offline for _, log_dir in found], np.bool_),
        np.array([log_dir.cordoned for _, log_dir in found], np.bool_),
    )
    return table, {(broker_id, log_dir.path): row for row, (broker_id, log_dir) in enumerate(found)}


def _partitions(brokers: Brokers, topics: list[TopicDescription]) -> Partitions:
    row_of = {int(broker_id): row for row, broker_id in enumerate(brokers.ids)}
    topic_rows, numbers, leaders, counts = [], [], [], []
    for topic_row, topic in enumerate(topics):
        for partition in topic.partitions:
            topic_rows.append(topic_row)
            numbers.append(partition.number)
            leaders.append(row_of.get(partition.leader, UNKNOWN))
            counts.append(len(partition.replicas))
    unknown = np.full(len(numbers), np.nan)
    return Partitions(
        np.array(topic_rows, np.int32),
        np.array(numbers, np.int32),
        np.array(leaders, np.int32),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        unknown,
        unknown.copy(),
    )


def _replicas(
    brokers: Brokers,
    topics: list[TopicDescription],
    rows: Mapping[tuple[int, str], int],
    reported: Iterable[BrokerLogDirs],
    running: Mapping[Partition, RunningReassignment],
    partitions: Partitions,
) -> Replicas:
    total = int(partitions.first_replicas[-1])
    log_dirs, future_log_dirs = np.full(total, UNKNOWN, np.int32), np.full(total, UNKNOWN, np.int32)
    sizes, lags, future_bytes = (np.full(total, UNKNOWN, np.int64) for _ in range(3))
    in_sync, states = np.zeros(total, np.bool_), np.full(total, ReplicaState.STAYING, np.int8)
    broker_rows = np.empty(total, np.int32)
    row_of = {int(broker_id): row for row, broker_id in enumerate(brokers.ids)}
    replica_rows: dict[tuple[str, int, int], int] = {}
    row = 0
    for topic in topics:
        for partition in topic.partitions:
            now = running.get(Partition(topic.name, partition.number))
            for broker_id in partition.replicas:
                replica_rows[topic.name, partition.number, broker_id] = row
                broker_rows[row] = row_of[broker_id]
                in_sync[row] = broker_id in partition.in_sync
                if now is not None:
                    states[row] = _state(now, broker_id)
                row += 1
    for of_broker in reported:
        for log_dir in of_broker.log_dirs:
            log_dir_row = rows.get((of_broker.broker_id, log_dir.path))
            for (topic_name, number), size_bytes, lag, future in log_dir.replicas:
                at = replica_rows.get((topic_name, number, of_broker.broker_id))
                if at is None or log_dir_row is None:
                    continue  # the topic was removed, or the replica moved away meanwhile
                if future:
                    future_log_dirs[at], future_bytes[at] = log_dir_row, size_bytes
                else:
                    log_dirs[at], sizes[at], lags[at] = log_dir_row, size_bytes, lag
    owners = np.repeat(np.arange(len(partitions), dtype=np.int32), np.diff(partitions.first_replicas))
    return Replicas(
        owners, broker_rows, log_dirs, sizes, lags, in_sync, states, future_log_dirs, future_bytes
    )


def _state(running: RunningReassignment, broker_id: int) -> ReplicaState:
    if broker_id in running.adding:
        return ReplicaState.ADDING
    return ReplicaState.REMOVING if broker_id in running.removing else ReplicaState.STAYING


def _known(value: int | None) -> int:
    return UNKNOWN if value is None else value
