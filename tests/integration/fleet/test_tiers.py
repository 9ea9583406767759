"""The three states of tiered topics on real brokers, held against their folders and Kafka's own tool."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rtolap.base.clock import SystemClock
from rtolap.cli.main import app
from rtolap.fleet.tiers.collect import collect_tiers
from rtolap.fleet.tiers.view import TierView, segments_behind
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    LOCAL_RETENTION_BYTES,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
)
from rtolap.stack.artifacts import JavaArtifacts
from typer.testing import CliRunner

from tests.support.fleet.agents import Agents
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.kafka_tools import offsets_by_tool
from tests.support.fleet.tiered_brokers import remote_folder, tiered_brokers
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SEGMENT_BYTES = 1 << 20
VALUE = bytes(range(256)) * 40
RECORDS_A_SEGMENT = SEGMENT_BYTES // len(VALUE)
COPY_RATE = "remote.log.manager.copy.max.bytes.per.second"


@dataclass
class TieredFleet:
    folder: Path
    brokers: Brokers
    administration: KafkaAdministration
    sources: Path

    def create(
        self, topic: str, *, tiered: bool, replicas: tuple[tuple[int, ...], ...] = ((1,), (1,))
    ) -> None:
        config = {"remote.storage.enable": "true"} if tiered else {}
        new = NewTopic(
            topic,
            num_partitions=len(replicas),
            replica_assignment=[list(of_partition) for of_partition in replicas],
            config={**config, "segment.bytes": str(SEGMENT_BYTES)},
        )
        admin = AdminClient({"bootstrap.servers": self.brokers.cluster.servers})
        admin.create_topics([new], operation_timeout=20)[topic].result(30)
        until(lambda: topic in self.administration.describe_topics([topic]), "the topic")

    def write(self, topic: str, records: int) -> None:
        """To its first partition, a batch each, so that segments are closed at the same offsets always."""
        producer = Producer({"bootstrap.servers": self.brokers.cluster.servers, "batch.num.messages": 1})
        for _ in range(records):
            producer.produce(topic, VALUE, partition=0)
        assert producer.flush(60) == 0

    def set(self, resource: ConfigResource, name: str, value: str | None) -> None:
        assert self.administration.alter_configs({resource: {name: value}}) == {}

    def view(self, topic: str) -> TierView:
        return collect_tiers(self.administration, SystemClock(), [topic])

    def bounds(self, topic: str) -> list[int]:
        found: list[int] = self.view(topic).partitions.bounds[0].tolist()
        return found

    def local_logs(self, topic: str, broker: int = 1) -> list[Path]:
        """The segments on the disk, in order."""
        (disk,) = self.brokers.log_dirs(broker)
        return sorted((disk / f"{topic}-0").glob("*.log"))

    def local_bases(self, topic: str, broker: int = 1) -> list[int]:
        """Their first offsets."""
        return [int(log.stem) for log in self.local_logs(topic, broker)]

    def leader(self, topic: str) -> int:
        return self.administration.describe_topics([topic])[topic].partitions[0].leader

    def settled(self, topic: str, leader: int) -> list[int]:
        """The bounds, once this broker leads, has copied all closed segments and removed what it may."""

        def is_settled() -> bool:
            logs, bounds = self.local_logs(topic, leader), self.bounds(topic)
            try:
                spared = sum(log.stat().st_size for log in logs[1:])
            except FileNotFoundError:
                return False  # one was removed meanwhile
            return (
                self.leader(topic) == leader
                and bounds[2] >= int(logs[-1].stem)  # a follower may have closed fewer
                and bounds[1] == int(logs[0].stem)
                and spared < 2 * SEGMENT_BYTES
            )

        until(is_settled, lambda: (self.bounds(topic), self.local_bases(topic, leader)), poll_s=0.1)
        return self.bounds(topic)

    def remote_logs(self, topic: str) -> list[Path]:
        return [
            log
            for log in remote_folder(self.folder).rglob("*.log")
            if log.parent.name.startswith(f"{topic}-0")
        ]

    def check_by_tool(self, java: JavaArtifacts, topic: str, bounds: list[int]) -> None:
        def told(spec: OffsetSpec) -> int | None:
            return offsets_by_tool(java, self.brokers.cluster, topic, spec).get(0)

        specs = (
            *(OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL),
            *(OffsetSpec.LATEST_TIERED, OffsetSpec.LATEST),
        )
        last_copied = None if bounds[2] == 0 else bounds[2] - 1
        with ThreadPoolExecutor(len(specs)) as pool:  # each of them is a process of its own
            assert list(pool.map(told, specs)) == [bounds[0], bounds[1], last_copied, bounds[3]]

    def check_all_is_read(self, topic: str, written: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.brokers.cluster.servers, "group.id": "unused"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        offsets: list[int] = []

        def all_read() -> bool:
            offsets.extend(record.offset() or 0 for record in consumer.consume(500, 0.2))
            return len(offsets) >= written

        until(all_read, lambda: len(offsets))
        consumer.close()
        assert offsets == list(range(written))


@pytest.fixture(scope="module")
def tiered(java: JavaArtifacts) -> Iterator[TieredFleet]:
    with tempfile.TemporaryDirectory(prefix="rtolap-tiers-") as name:
        folder = Path(name)
        agents = Agents(folder / "agents")
        with tiered_brokers(folder, java, agents.jvm_options) as brokers:
            administration = KafkaAdministration(brokers.cluster)
            sources = agents.write_sources(folder / "sources.yaml", brokers)
            yield TieredFleet(folder, brokers, administration, sources)
            administration.close()


@pytest.fixture
def fleet(tiered: TieredFleet, monkeypatch: pytest.MonkeyPatch) -> TieredFleet:
    """Commands reach it."""
    monkeypatch.setenv("RTOLAP_KAFKA", tiered.brokers.cluster.servers)
    monkeypatch.setenv("RTOLAP_FLEET_SOURCES", str(tiered.sources))
    return tiered


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["fleet", "tiers", *arguments])


def described(topic: str) -> Any:
    return json.loads(command(topic, "--json").stdout)["topics"][0]


def test_records_are_on_disk_only_then_copied_too_then_in_remote_storage_only(
    fleet: TieredFleet, java: JavaArtifacts, unique_name: str
) -> None:
    topic = unique_name
    fleet.create(topic, tiered=True)
    written = RECORDS_A_SEGMENT // 2
    fleet.write(topic, written)
    assert fleet.bounds(topic) == [0, 0, 0, written]
    fleet.check_by_tool(java, topic, [0, 0, 0, written])

    fleet.write(topic, 4 * RECORDS_A_SEGMENT)
    written += 4 * RECORDS_A_SEGMENT
    active = fleet.local_bases(topic)[-1]
    assert len(fleet.local_bases(topic)) == 5
    until(lambda: fleet.bounds(topic)[2] == active, lambda: fleet.bounds(topic))
    assert fleet.bounds(topic) == [0, 0, active, written]
    assert len(fleet.remote_logs(topic)) == 4
    fleet.check_by_tool(java, topic, [0, 0, active, written])
    view = fleet.view(topic)
    on_disk = sum(log.stat().st_size for log in fleet.local_logs(topic))
    assert view.partitions.local_bytes.tolist() == [on_disk, 0]
    assert segments_behind(view).tolist() == [0, 0]

    fleet.set(ConfigResource(ConfigKind.TOPIC, topic), LOCAL_RETENTION_BYTES, str(2 * SEGMENT_BYTES))
    until(lambda: fleet.bounds(topic)[1] > 0, "local retention")
    until(lambda: fleet.local_bases(topic)[0] == fleet.bounds(topic)[1], "the files of removed segments")
    earliest_local = fleet.local_bases(topic)[0]
    bounds = [0, earliest_local, active, written]
    assert fleet.bounds(topic) == bounds == sorted(set(bounds))  # all three states hold something
    fleet.check_by_tool(java, topic, bounds)
    assert fleet.view(topic).topics.local_retention_bytes.tolist() == [2 * SEGMENT_BYTES]

    assert command(topic, "--json").exit_code == 0
    # brokers' agents tell the bytes of remote storage from time to time
    remote_bytes = sum(log.stat().st_size for log in fleet.remote_logs(topic))
    until(
        lambda: described(topic)["remote_bytes"] == remote_bytes,
        lambda: (described(topic), remote_bytes),
        poll_s=0.5,
    )
    document = described(topic)
    assert document["offsets"] == {
        "remote_only": earliest_local,
        "local_and_remote": active - earliest_local,
        "local_only": written - active,
    }
    assert (document["lag_segments"], document["lagging"]) == (0, [])
    fleet.check_all_is_read(topic, written)


def test_the_states_are_those_of_kafkas_own_tool_when_another_broker_leads(
    fleet: TieredFleet, java: JavaArtifacts, unique_name: str
) -> None:
    """Each broker removes segments from its own disk, and the new leader copies on where the old one was."""
    topic = unique_name
    fleet.create(topic, tiered=True, replicas=((2, 1),))
    fleet.set(ConfigResource(ConfigKind.TOPIC, topic), LOCAL_RETENTION_BYTES, str(2 * SEGMENT_BYTES))
    written = 5 * RECORDS_A_SEGMENT
    fleet.write(topic, written)
    before = fleet.settled(topic, 2)
    assert before == sorted(set(before))  # all three states hold something
    assert before[3] == written

    fleet.brokers.servers[2].kill()
    fleet.brokers.wait_alive((1,))
    try:
        after = fleet.settled(topic, 1)
        assert (after[0], after[3]) == (0, written)
        assert after[2] >= before[2]
        fleet.write(topic, 3 * RECORDS_A_SEGMENT)
        written += 3 * RECORDS_A_SEGMENT
        grown = fleet.settled(topic, 1)
        assert grown == sorted(set(grown))
        assert grown[1] > after[1]
        assert grown[2] > after[2]
        fleet.check_by_tool(java, topic, grown)
        fleet.check_all_is_read(topic, written)
    finally:
        fleet.brokers.servers[2].start()
        fleet.brokers.wait_alive((1, 2))

    partition = Partition(topic, 0)

    def led_again() -> bool:
        fleet.administration.elect_preferred_leaders([partition])  # refused until it is in sync
        return fleet.leader(topic) == 2

    until(led_again, "the former leader", poll_s=0.2)
    back = fleet.settled(topic, 2)
    assert (back[0], back[3]) == (0, written)
    assert back[2] >= grown[2]
    fleet.check_by_tool(java, topic, back)


def test_partitions_whose_copying_lags_are_named_until_it_has_caught_up(
    fleet: TieredFleet, unique_name: str
) -> None:
    topic = unique_name
    fleet.create(topic, tiered=True)
    fleet.set(ALL_BROKERS, COPY_RATE, "1")
    try:
        fleet.write(topic, 8 * RECORDS_A_SEGMENT)
        told = command(topic)
        assert told.exit_code == 3, told.output
        assert f"{topic}:0: copying lags" in told.stderr
        assert f"{topic}:1: copying lags" not in told.stderr

        document = described(topic)
        assert document["lagging"] == [0]
        assert 2 <= document["segments_behind_min"] <= 8
    finally:
        fleet.set(ALL_BROKERS, COPY_RATE, None)
    until(lambda: command(topic).exit_code == 0, lambda: command(topic).output, poll_s=0.5)
    # one segment behind is no lag
    until(
        lambda: fleet.bounds(topic)[2] == fleet.local_bases(topic)[-1],
        lambda: f"copied to {fleet.bounds(topic)}, on the disk from {fleet.local_bases(topic)}",
    )


def test_copies_that_fail_are_counted_with_what_they_leave_to_copy(
    fleet: TieredFleet, unique_name: str
) -> None:
    """By the agent: brokers count what is left whenever a round of copying has ended, or failed."""
    topic = unique_name
    fleet.create(topic, tiered=True)
    remote = remote_folder(fleet.folder)
    away = remote.with_name("away")
    remote.rename(away)
    remote.touch()  # in place of the folder
    try:
        fleet.write(topic, 4 * RECORDS_A_SEGMENT)
        closed = len(fleet.local_bases(topic)) - 1

        def all_fail() -> bool:
            document = described(topic)
            return bool(document["copy_errors"]) and document["lag_segments"] == closed

        until(all_fail, lambda: described(topic), poll_s=0.5)
        told = command(topic)
        assert told.exit_code == 3
        assert f"{topic}:0: copying lags" in told.stderr
        assert "copies have failed since the brokers' start" in told.stderr
    finally:
        remote.unlink()
        away.rename(remote)
    until(lambda: described(topic)["lag_segments"] == 0, lambda: described(topic), poll_s=0.5)
    assert command(topic).exit_code == 0


def test_a_topic_without_tiers_says_so_and_has_no_states(fleet: TieredFleet, unique_name: str) -> None:
    fleet.create(unique_name, tiered=False)
    told = command(unique_name)
    assert told.exit_code == 0, told.output
    assert f"{unique_name} is not tiered" in told.output
    document = json.loads(command(unique_name, "--json").stdout)
    assert (document["tiering_brokers"], document["other_brokers"]) == ([1, 2], [])
    assert document["topics"][0]["partitions"] == []


def test_a_cluster_without_remote_storage_says_so(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTOLAP_KAFKA", brokers.cluster.servers)
    monkeypatch.delenv("RTOLAP_FLEET_SOURCES", raising=False)
    told = command()
    assert told.exit_code == 0, told.output
    assert "is tiered (remote.storage.enable)" in told.output
    assert "brokers without tiered storage (remote.log.storage.system.enable): 1, 2, 3" in told.output
