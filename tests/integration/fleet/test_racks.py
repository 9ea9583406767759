"""Six brokers in three racks: each rack killed in turn, and who can still write is who the audit said; one
cordoned; one drained by the mover."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.cimpl import NewTopic
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Unavailable
from rtolap.fleet.isolation.audit import audit
from rtolap.fleet.isolation.findings import FindingKind
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.observations import cordoned
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.model.fleet import FleetCluster, KafkaFleet, TopicOwner
from rtolap.stack.artifacts import JavaArtifacts

from tests.integration.fleet.conftest import world_of
from tests.support.fleet.broker_lives import GreedyDrains
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.moved_fleet import FAST, moved_fleet
from tests.support.kafka_topics import create_topic
from tests.support.waiting import result_of, until

pytestmark = pytest.mark.integration

RACKS = ("a", "a", "b", "b", "c", "c")
SPREAD, SHARED = "spread", "shared"
FLEET = KafkaFleet(
    "drill", {"one": FleetCluster(businesses=("shop",), roles="combined")}, (TopicOwner(("*",), "shop"),)
)


@pytest.fixture(scope="module")
def six(java: JavaArtifacts) -> Iterator[Brokers]:
    """Two brokers a rack, with a controller in each: the quorum stands the loss of any."""
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-racks-") as folder,
        Brokers(Path(folder), java, 6, racks=RACKS, controllers=(1, 3, 5)) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def administration(six: Brokers) -> Iterator[KafkaAdministration]:
    opened = KafkaAdministration(six.cluster)
    yield opened
    opened.close()


def create(six: Brokers, topic: str, replicas: list[list[int]] | None = None) -> None:
    config = {"min.insync.replicas": "2"}
    if replicas is None:
        new = NewTopic(topic, num_partitions=24, replication_factor=1)
    else:
        new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=config)
    create_topic(six.cluster.servers, new)


def look(administration: KafkaAdministration) -> FleetSnapshot:
    return collect_snapshot(administration, SystemClock())


def unwritable(six: Brokers, topic: str, partitions: int, timeout_s: float) -> set[int]:
    """Send a record to each partition, with acks=all; return those that did not take it in the time."""
    producer = Producer(
        {
            "bootstrap.servers": six.cluster.servers,
            "acks": "all",
            "message.timeout.ms": int(timeout_s * 1000),
        }
    )
    refused: set[int] = set()

    def note(number: int, error: KafkaError | None) -> None:
        if error is not None:
            refused.add(number)

    for number in range(partitions):
        producer.produce(
            topic, b"x", partition=number, on_delivery=lambda error, _, at=number: note(at, error)
        )
    assert producer.flush(timeout_s + 30) == 0
    return refused


def test_every_spread_partition_is_written_without_any_one_rack_and_the_audit_names_the_others(
    six: Brokers, administration: KafkaAdministration
) -> None:
    spread = [[1, 3, 5], [4, 6, 2], [5, 1, 4], [3, 2, 6], [6, 4, 1], [2, 5, 3]]
    create(six, SPREAD, spread)
    create(six, SHARED, [[1, 2, 3], [1, 3, 5], [5, 6, 2]])
    until(lambda: look(administration).replicas.in_sync.all(), "all in sync", poll_s=0.2)
    findings = audit(FLEET, {"one": look(administration)}).findings
    named = {
        (finding.subject, finding.found): finding.partitions
        for finding in findings
        if finding.kind is FindingKind.RACK_LOSS
    }
    assert named == {(SHARED, "fewer without a, c"): (0, 2)}
    shared_racks = [finding for finding in findings if finding.kind is FindingKind.SHARED_RACK]
    assert [(finding.subject, finding.partitions) for finding in shared_racks] == [(SHARED, (0, 2))]

    expected_lost = {"a": {0}, "b": set(), "c": {2}}
    for rack, lost in expected_lost.items():
        stopped = [node for node in six.ids if RACKS[node - 1] == rack]
        for node in stopped:
            six.servers[node].kill()
        six.wait_alive([node for node in six.ids if node not in stopped])
        assert unwritable(six, SPREAD, len(spread), timeout_s=60) == set()
        assert unwritable(six, SHARED, 3, timeout_s=8) == lost
        stuck = {
            finding.subject: set(finding.partitions)
            for finding in audit(FLEET, {"one": look(administration)}).findings
            if finding.kind is FindingKind.NOT_WRITABLE
        }
        assert stuck == ({SHARED: lost} if lost else {})
        for node in stopped:
            six.servers[node].start()
        six.wait_alive(six.ids)
        until(lambda: look(administration).replicas.in_sync.all(), "all in sync again", poll_s=0.2)


def test_a_cordoned_broker_gets_no_new_partition_until_it_is_uncordoned(
    six: Brokers, administration: KafkaAdministration, unique_name: str
) -> None:
    actions = ClusterActions(administration, GreedyDrains.__new__(GreedyDrains))
    for _ in range(2):
        result_of(lambda: actions.cordon(6), Unavailable)  # it may have joined a moment ago
    until(lambda: cordoned(6, look(administration)), "the broker says so", poll_s=0.2)

    def brokers_of(topic: str) -> set[int]:
        described = administration.describe_topics([topic])[topic]
        return {broker for partition in described.partitions for broker in partition.replicas}

    topics = (f"{unique_name}_{number}" for number in itertools.count())

    def spread_over(brokers: set[int]) -> bool:
        """Of a new topic; one that was started again a moment ago may be given nothing yet."""
        create(six, topic := next(topics))
        found = brokers_of(topic)
        assert found <= brokers
        return found == brokers

    until(lambda: spread_over({1, 2, 3, 4, 5}), "partitions on all but the cordoned one", poll_s=0.5)
    for _ in range(2):
        actions.uncordon(6)
    until(lambda: cordoned(6, look(administration)) is False, "the broker says so", poll_s=0.2)
    until(lambda: spread_over(set(six.ids)), "partitions on all brokers", poll_s=0.5)


def test_a_broker_is_drained_under_records_that_are_written_and_read_and_no_partition_loses_a_rack(
    six: Brokers, zookeeper: str, unique_name: str, tmp_path: Path
) -> None:
    replicas = [[1 + n % 2, 3 + n // 2 % 2, 5 + n // 4 % 2] for n in range(8)]
    turned = [of_one[n % 3 :] + of_one[: n % 3] for n, of_one in enumerate(replicas)]
    with moved_fleet(six, world_of(six, unique_name), zookeeper, tmp_path, turned) as fleet:

        def drain() -> None:
            plan_id, _ = fleet.submit(FAST, plan_drain(fleet.snapshot(), [6]))
            assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

        fleet.recounted(drain)
        for of_one in fleet.replicas():
            assert 6 not in of_one
            assert {RACKS[broker - 1] for broker in of_one} == {"a", "b", "c"}
        fleet.check_nothing_left()
