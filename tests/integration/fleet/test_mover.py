"""Plans carried out on real brokers, while records are written and read all the time and recounted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from rtolap.base.clock import SystemClock
from rtolap.base.errors import PlanChanged, PlanOutdated
from rtolap.cli.main import app
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.submitting import MoverRequests, planned_moves
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import kafka_json, load_plan, plan_digest
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import UNKNOWN, Snapshot
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    ConfigKind,
    ConfigResource,
    Partition,
)
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.stack.artifacts import JavaArtifacts
from typer.testing import CliRunner

from tests.integration.fleet.conftest import world_of
from tests.support.fleet.administration_contract import World
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.counted_records import RunningConsumer, RunningProducer
from tests.support.fleet.kafka_tools import verify_plan
from tests.support.fleet.mover_process import MoverProcess
from tests.support.waiting import until

pytestmark = pytest.mark.integration

PARTITIONS = 8
SIZE_BYTES = 2_000_000
SLOW = 150_000


@dataclass
class MovedFleet:
    brokers: Brokers
    world: World
    kept: KeptFleet
    mover: MoverProcess
    requests: MoverRequests
    topic: str
    env: dict[str, str]

    def snapshot(self) -> Snapshot:
        """As if each log directory were a small disk of its own: here all of them share one."""
        taken = self.whole_snapshot()
        replicas, log_dirs = taken.replicas, taken.log_dirs
        used = np.bincount(replicas.log_dirs, replicas.size_bytes, minlength=len(log_dirs)).astype(np.int64)
        total = np.full(len(log_dirs), 20 * SIZE_BYTES, np.int64)
        disks = replace(log_dirs, total_bytes=total, usable_bytes=total - used)
        return replace(taken, log_dirs=disks)

    def whole_snapshot(self) -> Snapshot:
        """Brokers that have just made a replica may not tell of it yet."""
        taken: list[Snapshot] = []

        def is_whole() -> bool:
            taken.append(collect_snapshot(self.world.administration, SystemClock()))
            return bool((taken[-1].replicas.log_dirs != UNKNOWN).all())

        until(is_whole, "where all replicas are", poll_s=0.2)
        return taken[-1]

    def submit(self, rate: int | None) -> tuple[str, Plan]:
        plan = plan_disks(self.snapshot())
        assert len(plan) > 2, plan.why
        return self.requests.submit(plan, rate_bytes_per_s=rate), plan

    def record(self, plan_id: str) -> PlanRecord:
        kept = self.kept.plan(plan_id)
        assert kept is not None
        return kept.record

    def wait_ended(self, plan_id: str) -> PlanRecord:
        try:
            until(lambda: self.record(plan_id).state is PlanState.ENDED, plan_id, timeout_s=150, poll_s=0.2)
        except AssertionError:
            running = self.world.administration.running_reassignments()
            raise AssertionError(f"not ended: {self.record(plan_id)}, {running}") from None
        return self.record(plan_id)

    def throttles(self) -> dict[str, dict[str, str]]:
        topics = [
            ConfigResource(ConfigKind.TOPIC, name) for name in self.world.administration.describe_topics()
        ]
        names = [LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS]
        found = self.world.administration.configs([*topics, ALL_BROKERS], names)
        return {str(resource): values for resource, values in found.items() if values}

    def check_nothing_left(self) -> None:
        assert self.throttles() == {}
        assert self.world.administration.running_reassignments() == {}
        until(lambda: not self.not_in_sync(), "all replicas in sync")

    def not_in_sync(self) -> list[str]:
        return [
            f"{topic.name}:{partition.number}"
            for topic in self.world.administration.describe_topics().values()
            for partition in topic.partitions
            if set(partition.in_sync) != set(partition.replicas)
        ]

    def used_bytes(self) -> dict[str, int]:
        """By broker and disk, of the topic."""
        partitions = [Partition(self.topic, number) for number in range(PARTITIONS)]
        told = self.world.administration.describe_log_dirs(self.brokers.ids, partitions)
        return {
            f"{broker}:{Path(log_dir.path).name}": sum(r.size_bytes for r in log_dir.replicas if not r.future)
            for broker, of_broker in told.items()
            for log_dir in of_broker.log_dirs
        }


@pytest.fixture
def fleet(own_brokers: Brokers, zookeeper: str, unique_name: str, tmp_path: Path) -> Iterator[MovedFleet]:
    with moved_fleet(own_brokers, zookeeper, unique_name, tmp_path) as made:
        yield made


@contextmanager
def moved_fleet(
    own_brokers: Brokers, zookeeper: str, unique_name: str, tmp_path: Path
) -> Iterator[MovedFleet]:
    """All of a topic lies at the brokers 1 and 2; nothing is at broker 3."""
    world = world_of(own_brokers, unique_name)
    topic = world.create([[1, 2] if number % 2 else [2, 1] for number in range(PARTITIONS)])
    for number in range(PARTITIONS):
        world.fill(Partition(topic, number), SIZE_BYTES)
    token = tmp_path / "token"
    token.write_text(secrets.token_urlsafe(20))
    root = f"/{unique_name}"
    env = {
        "RTOLAP_KAFKA": own_brokers.cluster.servers,
        "RTOLAP_ZOOKEEPER": zookeeper,
        "RTOLAP_ZOOKEEPER_ROOT": root,
        "RTOLAP_TOKEN_FILE": str(token),
        "RTOLAP_SESSION_TIMEOUT_S": "2",
    }
    store = ZooKeeperStore(zookeeper, root=root, session_timeout_s=6.0)
    kept = KeptFleet(store, world.administration.describe_cluster().cluster_id)
    requests = MoverRequests(kept, SystemClock(), token.read_text(), "ada")
    mover = MoverProcess(env, tmp_path / "mover.log")
    with mover:
        yield MovedFleet(own_brokers, world, kept, mover, requests, topic, env)
    print((tmp_path / "mover.log").read_text()[-3000:])
    store.close()
    world.administration.close()


def recounted(fleet: MovedFleet, work: Callable[[], None]) -> None:
    """Does the work while records are written and read; then each one that was acknowledged is there once."""
    consumer = RunningConsumer(fleet.brokers.cluster, fleet.topic, PARTITIONS)
    with consumer:
        with RunningProducer(fleet.brokers.cluster, fleet.topic, PARTITIONS) as producer:
            work()
        until(lambda: consumer.has_all(producer.acknowledged), "all that was acknowledged")
    for number, numbers in producer.acknowledged.items():
        assert len(numbers) > 10
        assert consumer.read[number] == dict.fromkeys(numbers, 1)


def test_an_unbalanced_fleet_becomes_balanced_under_records_that_are_written_and_read(
    fleet: MovedFleet, java: JavaArtifacts, tmp_path: Path
) -> None:
    """Kafka's own tool, which reads the same plan, says that it was carried out."""
    before = fleet.used_bytes()
    assert before["3:d0"] + before["3:d1"] == 0
    plans: list[Plan] = []

    def balance() -> None:
        plan_id, plan = fleet.submit(20_000_000)
        plans.append(plan)
        record = fleet.wait_ended(plan_id)
        assert set(record.outcomes) == {"d"}

    recounted(fleet, balance)
    file = tmp_path / "kafka.json"
    file.write_bytes(kafka_json(plans[0]))
    told = verify_plan(java, fleet.brokers.cluster, file)
    assert told.count("is completed") >= len(plans[0])
    assert "There is no active reassignment" not in told
    assert "still in progress" not in told
    after = fleet.used_bytes()
    assert max(after.values()) < max(before.values())
    assert min(after.values()) > 0.5 * max(after.values())
    fleet.check_nothing_left()


def test_a_plan_that_is_cancelled_in_the_middle_leaves_everything_as_it_was(fleet: MovedFleet) -> None:
    ended: list[tuple[PlanRecord, Plan]] = []

    def cancel() -> None:
        plan_id, plan = fleet.submit(SLOW)
        until(lambda: fleet.world.administration.running_reassignments(), "a running reassignment")
        assert fleet.throttles()
        grown = NewPartitions(fleet.topic, PARTITIONS + 1, replica_assignment=[[1, 3]])
        admin = AdminClient({"bootstrap.servers": fleet.brokers.cluster.servers})
        admin.create_partitions([grown])[fleet.topic].result(30)  # a topic grows while it is moved
        fleet.requests.ask(RequestKind.CANCEL, reason="too slow")
        ended.append((fleet.wait_ended(plan_id), plan))

    recounted(fleet, cancel)
    record, plan = ended[0]
    assert "c" in record.outcomes
    now = fleet.world.administration.describe_topics([fleet.topic])[fleet.topic].partitions
    for move, outcome in zip(planned_moves(plan), record.outcomes, strict=True):
        assert outcome in "cd"
        assert now[move.number].replicas == (move.before if outcome == "c" else move.after)
    assert now[PARTITIONS].replicas == (1, 3)
    fleet.check_nothing_left()


def test_a_mover_that_is_killed_again_and_again_is_followed_by_one_that_ends_the_plan(
    fleet: MovedFleet,
) -> None:
    def kill() -> None:
        plan_id, _ = fleet.submit(2_000_000)
        for reached in (
            lambda: fleet.throttles(),
            lambda: fleet.world.administration.running_reassignments(),
            lambda: "d" in fleet.record(plan_id).outcomes,
        ):
            until(reached, "the point at which it is killed")
            fleet.mover.kill()
            fleet.mover.start()
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    recounted(fleet, kill)
    fleet.check_nothing_left()


def test_a_broker_that_stops_in_the_middle_is_waited_for(fleet: MovedFleet) -> None:
    def stop() -> None:
        plan_id, _ = fleet.submit(SLOW)
        until(lambda: fleet.world.administration.running_reassignments(), "a running reassignment")
        fleet.brokers.servers[3].kill()
        fleet.brokers.wait_alive((1, 2))
        fleet.brokers.servers[3].start()
        fleet.brokers.wait_alive((1, 2, 3))
        fleet.requests.ask(RequestKind.PAUSE)
        fleet.requests.ask(RequestKind.RESUME)
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    recounted(fleet, stop)
    fleet.check_nothing_left()


def test_a_controller_that_is_killed_in_the_middle_hinders_nobody(
    java: JavaArtifacts, zookeeper: str, unique_name: str, tmp_path: Path
) -> None:
    with (
        Brokers(tmp_path / "brokers", java, controllers=(1, 2, 3)) as brokers,
        moved_fleet(brokers, zookeeper, unique_name, tmp_path) as fleet,
    ):

        def kill() -> None:
            plan_id, _ = fleet.submit(4 * SLOW)
            until(lambda: fleet.world.administration.running_reassignments(), "a running reassignment")
            controller = fleet.world.administration.describe_cluster().controller
            brokers.servers[controller].kill()
            brokers.wait_alive(set(brokers.ids) - {controller})
            assert fleet.world.administration.describe_cluster().controller != controller
            brokers.servers[controller].start()
            assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

        recounted(fleet, kill)
        fleet.check_nothing_left()


def test_a_plan_is_made_submitted_and_watched_by_commands(
    fleet: MovedFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)
    administration = fleet.world.administration
    partitions = [Partition(fleet.topic, number) for number in range(PARTITIONS)]
    assert administration.reassign(dict.fromkeys(partitions, (1, 2))) == {}

    def leaders() -> list[int]:
        administration.elect_preferred_leaders(partitions)
        return [p.leader for p in administration.describe_topics([fleet.topic])[fleet.topic].partitions]

    until(lambda: leaders() == [1] * PARTITIONS, "one leader of all")
    file = tmp_path / "plan.json"
    done = command("plan", "leaders", "--out", str(file))
    assert done.exit_code == 0, done.output
    digest = plan_digest(load_plan(file))
    assert isinstance(command("submit", str(file), "--digest", "0" * 12).exception, PlanChanged)
    submitted = command("submit", str(file), "--digest", digest[:12], "--reason", "one leads all", "--json")
    assert submitted.exit_code == 0, f"{submitted.output}\n{submitted.exception!r}"
    plan_id = json.loads(submitted.output)["plan"]
    until(lambda: json.loads(command("moves", "--json").output)["state"] == "ended", "the plan's end")
    told = json.loads(command("moves", plan_id, "--json").output)
    assert set(told["counts"]) == {"done"}
    assert sorted(leaders()) == [1] * (PARTITIONS // 2) + [2] * (PARTITIONS // 2)
    assert "one leads all" in command("moves", "--audit").output
    assert isinstance(command("submit", str(file)).exception, PlanOutdated)
    assert command("pause").exception is not None  # nothing runs
    fleet.check_nothing_left()


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["fleet", *arguments])
