"""Receivers, coordinator, loaders, commands on a broker that wants TLS, a password and a right for all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError, Forbidden, NotFound, Unauthorized, Unavailable
from rtolap.cli.main import app
from rtolap.fleet.isolation.findings import TopicUsers
from rtolap.fleet.isolation.topic_users import collect_users
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.tiers.collect import collect_tiers
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.interface import ListedGroup
from rtolap.kafka.administration.values import (
    LEADER_REPLICAS,
    ConfigKind,
    ConfigResource,
    OffsetSpec,
    Partition,
    Right,
)
from rtolap.kafka.clusters import KafkaCluster, KafkaClusters
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.kafka.rights import Need, check_rights
from rtolap.model.loader import LoaderRejects
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stored.loader.records.rejects import reject_topic
from rtolap.stored.metastore.database import Ledger
from typer.testing import CliRunner

from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.loader.loader_world import Around, LoaderWorld
from tests.support.secure_kafka import SecureKafka
from tests.support.stored.stored_cluster import StoredCluster
from tests.support.waiting import until

pytestmark = pytest.mark.integration

NOWHERE = "127.0.0.1:9"  # what is reached by name is not found by RTOLAP_KAFKA
GUARDED = "guarded"


@pytest.fixture(scope="module")
def broker(module_folder: Path, java: JavaArtifacts) -> Iterator[SecureKafka]:
    with SecureKafka(module_folder / "secure-kafka", java) as running:
        yield running


@pytest.fixture
def user(broker: SecureKafka, unique_name: str) -> str:
    """A new one, who may do nothing."""
    broker.add_user(unique_name)
    return unique_name


def reached(broker: SecureKafka, user: str, **changes: object) -> KafkaCluster:
    file = broker.clusters_file(user, GUARDED, changes=cast(Any, changes))
    return KafkaClusters.load(NOWHERE, file).get(GUARDED)


def assert_no_password(broker: SecureKafka, *texts: str) -> None:
    for password in broker.passwords.values():
        assert all(password not in text for text in texts)


def test_a_cube_starts_when_the_last_right_is_there_and_counts_each_event_once(
    broker: SecureKafka, user: str, tmp_path: Path, zookeeper: str
) -> None:
    services = Services(tmp_path, zookeeper=zookeeper, root=f"/{user}", kafka=NOWHERE, coordinators=1)
    services.environment["RTOLAP_KAFKA_CLUSTERS"] = str(broker.clusters_file(user, GUARDED))
    name = f"c_{user[-8:]}"
    world = World(services, broker.cluster, name, 5, {"left": ("r0",)}, kafka_cluster=GUARDED)
    dead_letters = world.schema.table.dead_letter_topic
    admin = KafkaAdmin(broker.cluster)
    admin.create_topic(name, PARTITIONS)
    log = tmp_path / "r0.log"
    try:
        services.start_coordinators()
        world.start_receivers("left")
        services.start_query()
        with pytest.raises(
            Forbidden, match=f"User:{user} may not describe {name}; .* on Kafka cluster guarded"
        ):
            world.declare()
        broker.grant(user, name, "Describe")
        until(lambda: _enabled(world), "the right to describe is seen")

        wait_for("Read and Create are named", lambda: "misses rights" in log.read_text())
        assert (
            f"cube {name} is not started: User:{user} misses rights on Kafka cluster guarded: "
            f"Read on topic {name}; Write on topic {dead_letters}"
        ) in log.read_text()
        broker.grant(user, name, "Read")
        broker.grant(user, dead_letters, "Describe", "Create")
        missing = f"misses rights on Kafka cluster guarded: Write on topic {dead_letters}"
        wait_for("Write is named once the topic is made", lambda: missing in log.read_text())
        world.produce(1500)
        wait_for(
            "the cube says what is missing", lambda: missing in str(services.coordinator.cube(name).problem)
        )
        (receiver,) = services.coordinator.receivers()
        assert (receiver.health, receiver.cubes[name].state) == ("WARN", "FAILED")
        assert missing in receiver.reason

        broker.grant(user, dead_letters, "Write")
        wait_for("everything is counted", world.caught_up)
        wait_for("nothing is missing", lambda: services.coordinator.cube(name).problem is None)
        positions, answer = world.ask()
        assert positions == world.ends()
        assert answer == world.expected(positions)

        malformed = {(p, at) for p, events in world.log.items() for at, e in enumerate(events) if e is None}
        assert malformed

        def kept() -> set[tuple[int, int]]:
            return {(one.partition, one.offset) for one in read_dead_letters(broker.cluster, dead_letters)}

        wait_for("each malformed record is a dead letter", lambda: kept() == malformed)
        assert_no_password(broker, *(path.read_text() for path in tmp_path.glob("*.log")))
    finally:
        world.close()
        services.close()
        admin.close()


def _enabled(world: World) -> bool:
    try:
        world.services.coordinator.enable_cube(world.cube)
    except Forbidden:
        return False
    return True


def test_a_loader_begins_when_the_last_right_is_there_and_loads_each_row_once(
    broker: SecureKafka, user: str, tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path / 'ledger.db'}"
    name = f"l_{user[-8:]}"
    with (
        Ledger.open(address) as ledger,
        StoredCluster(tmp_path / "cluster", address) as cluster,
    ):
        cluster.start(endpoints=1, nodes=1)
        around = Around(
            cast(Any, SimpleNamespace(address=NOWHERE)),
            cast(Any, None),
            cluster,
            ledger,
            {"RTOLAP_LEDGER": address},
        )
        world = LoaderWorld(
            name,
            "duplicate",
            around,
            tmp_path / "loader",
            env={"RTOLAP_KAFKA_CLUSTERS": str(broker.clusters_file(user, GUARDED))},
            reached=broker.cluster,
            kafka_cluster=GUARDED,
            rejects=LoaderRejects(tolerance_percent=50),
        )
        rejects = reject_topic(name, name)
        producer = KafkaProducer(broker.cluster)
        try:
            world.produce(random.Random(3), 700)
            producer.produce(name, [OutRecord(b"no JSON", partition=at % 2) for at in range(40)])
            producer.flush(30)

            world.process.start(wait=False)
            until(lambda: world.status().state == "FAILED", "the missing rights end the job", timeout_s=60)
            assert (
                f"kafka_refuses: User:{user} misses rights on Kafka cluster guarded: "
                f"Read on topic {name}; Write on topic {rejects}"
            ) in world.status().reason
            assert world.rows() == []
            world.process.stop()

            broker.grant(user, name, "Read")
            broker.grant(user, rejects, "Create", "Write")
            world.process.start()
            world.wait_loaded()
            assert sorted(row["src"] for row in world.rows()) == sorted(row["src"] for row in world.produced)
            kept = [one.reason for one in read_dead_letters(broker.cluster, rejects)]
            assert len(kept) == 40
            assert_no_password(broker, world.process.log_tail(10_000), str(world.status()))
        finally:
            producer.close()
            world.close()


def test_what_keeps_a_client_out_is_told_apart(broker: SecureKafka, user: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("a wrong password")
    needs = [Need("nothing", "Read")]
    with pytest.raises(Unauthorized, match=f"guarded does not let User:{user} in") as refused:
        check_rights(reached(broker, user, **{"sasl.password": {"file": str(wrong)}}), needs)
    assert "a wrong password" not in str(refused.value)
    with pytest.raises(Unavailable, match="certificate"):
        check_rights(reached(broker, user, **{"ssl.ca.location": None}), needs, timeout_s=3.0)
    with pytest.raises(DefinitionError, match=r"ssl\.ca\.location"):
        check_rights(reached(broker, user, **{"ssl.ca.location": str(tmp_path / "none.pem")}), needs)
    with pytest.raises(Forbidden, match="misses rights on Kafka cluster guarded: Read on topic nothing"):
        check_rights(reached(broker, user), needs)
    with pytest.raises(NotFound, match="has no topic nothing"):
        check_rights(broker.cluster, needs)
    check_rights(broker.cluster, [Need("nothing", "Write", creates=True)])


def test_commands_reach_it_by_name(
    broker: SecureKafka, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RTOLAP_KAFKA", broker.server.address)
    file = broker.clusters_file(user, DEFAULT_KAFKA_CLUSTER, changes={"bootstrap.servers": None})
    monkeypatch.setenv("RTOLAP_KAFKA_CLUSTERS", str(file))
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"a": 1}\n{"a": 2}\n')

    def produce(*options: str) -> Any:
        return CliRunner().invoke(app, ["produce", str(lines), "--topic", user, *options])

    assert isinstance(produce("--partitions", "2").exception, Forbidden)
    broker.grant(user, user, "Create", "Write")
    done = produce("--partitions", "2", "--json")
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    assert sum(KafkaAdmin(broker.cluster).offsets(user, "latest").values()) == 2
    assert_no_password(broker, done.output)
    assert "knows no Kafka cluster other" in str(produce("--cluster", "other").exception)


def test_the_administration_of_a_fleet_names_the_right_that_is_missing(
    broker: SecureKafka, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    broker.grant(user, user, "Describe")
    KafkaAdmin(broker.cluster).create_topic(user, 1)
    administration = KafkaAdministration(reached(broker, user))
    partition = Partition(user, 0)
    topic = ConfigResource(ConfigKind.TOPIC, user)
    try:
        assert list(administration.describe_topics()) == [user]
        assert isinstance(administration.describe_log_dirs([1])[1].missing, Forbidden)
        with pytest.raises(Forbidden, match="Alter on the cluster"):
            administration.reassign({partition: [1]})
        with pytest.raises(Forbidden, match="Describe on the cluster"):
            administration.running_reassignments()
        refused = administration.alter_configs({topic: {LEADER_REPLICAS: "0:1"}})
        assert isinstance(refused[topic], Forbidden)
        with pytest.raises(Forbidden, match="DescribeConfigs"):
            administration.client_quotas()
        hidden = Partition(f"{user}-hidden", 0)
        offsets = administration.list_offsets({partition: 1, hidden: 1}, OffsetSpec.LATEST)
        assert offsets[partition] == 0
        assert isinstance(offsets[hidden], Forbidden)
        with pytest.raises(Forbidden, match="DescribeConfigs"):
            collect_tiers(administration, SystemClock())
        assert administration.missing_rights(
            [Right.ALTER], [Right.DESCRIBE, Right.ALTER_CONFIGS], [user]
        ) == (
            "Alter on the cluster",
            f"AlterConfigs on topic {user}",
        )
        producers = administration.active_producers({partition: 1})[partition]
        assert "Read on the topics" in str(producers)
        (hidden_groups,) = administration.list_groups([1]).missing
        assert isinstance(hidden_groups, Forbidden)
        assert "Describe on the cluster" in str(hidden_groups)
        group = ListedGroup(f"{user}-group", "classic", "Stable", 1)
        for told in (administration.committed_offsets([group]), administration.describe_groups([group])):
            assert "Describe on the groups" in str(told[group.group])
        found = collect_users(administration, collect_snapshot(administration, SystemClock()), [user])
        assert found.users == {user: TopicUsers(groups=())}
        assert [each.partition(" (")[0] for each in found.missing] == [
            "consumer groups",
            f"producers of partitions {partition}",
        ]
        assert "reassignments" in str(
            [m.fact for m in collect_snapshot(administration, SystemClock()).missing]
        )
        assert_no_password(broker, caplog.text)
    finally:
        administration.close()


def test_the_administration_with_a_wrong_password_is_not_let_in(broker: SecureKafka, user: str) -> None:
    wrong = broker.folder / "wrong.password"
    wrong.write_text("not this one")
    wrong.chmod(0o600)
    with pytest.raises(Unauthorized) as raised:
        KafkaAdministration(reached(broker, user, **{"sasl.password": {"file": str(wrong)}}))
    assert_no_password(broker, str(raised.value))
