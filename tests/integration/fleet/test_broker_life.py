"""A real broker is drained by the mover, stopped, repaired and taken back: by operations, and by commands.
Another one, whose disk fails, is cordoned and drained by policy."""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import Refused
from rtolap.cli.main import app
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.operations.drains import PlannedDrains
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.values import Partition
from rtolap.metadata.store import Create
from rtolap.stack.artifacts import JavaArtifacts
from typer.testing import CliRunner

from tests.integration.fleet.conftest import world_of
from tests.support.commands import called, ended
from tests.support.fleet.broker_lives import undeclared
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.mover_process import MoverProcess
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.waiting import until

pytestmark = pytest.mark.integration

TOKEN, FENCE = "token", "/fence"


@pytest.fixture(scope="module")
def lived(java: JavaArtifacts) -> Iterator[Brokers]:
    """Three brokers, all serving and not cordoned before each test and after it."""
    with (
        tempfile.TemporaryDirectory(prefix="rtolap-lives-") as folder,
        Brokers(Path(folder), java) as started,
    ):
        yield started


def test_a_broker_is_drained_repaired_and_serves_again(lived: Brokers, unique_name: str) -> None:
    world = world_of(lived, unique_name)
    topic = world.create([[3, 1], [2, 3], [3, 2]])
    for number in range(3):
        world.fill(Partition(topic, number), 200_000)
    clock, store = SystemClock(), MemoryStore(MemoryEnsemble())
    store.commit([Create(FENCE, b"")])

    def look() -> FleetSnapshot:
        return collect_snapshot(world.administration, clock)

    cluster_id = look().cluster_id
    fleet_store = FleetStore(store, cluster_id)
    drains = PlannedDrains(world.administration, fleet_store, clock, TOKEN, registered_of=undeclared)
    operations = BrokerOperations(store, cluster_id, ClusterActions(world.administration, drains), clock)
    mover = Mover(
        world.administration,
        fleet_store,
        lambda: FENCE,
        clock,
        TOKEN,
        settings=MoverSettings(look_every_s=0.2),
    )
    thread = threading.Thread(target=mover.run)
    thread.start()

    def state() -> BrokerLife:
        assert operations.observe(look()) == {}
        return operations.records()[3].state

    def held() -> int:
        described = world.administration.describe_topics([topic])[topic]
        return sum(3 in partition.replicas for partition in described.partitions)

    try:
        drained = operations.operate(3, BrokerEvent.DRAIN, "ann", "disk fails", look())
        assert drained.state is BrokerLife.DRAINING
        until(lambda: state() is BrokerLife.DRAINED, "the broker is empty", poll_s=0.3)
        assert held() == 0
        assert operations.operate(3, BrokerEvent.REPAIR, "ann", "disk", look()).state is BrokerLife.REPAIRING
        lived.servers[3].stop()
        lived.wait_alive((1, 2))
        with pytest.raises(Refused):
            operations.operate(3, BrokerEvent.CORDON, "ann", "too late", look())
        operations.operate(3, BrokerEvent.REPAIRED, "ann", "a new disk", look())
        assert state() is BrokerLife.JOINING
        lived.servers[3].start()
        lived.wait_alive((1, 2, 3))
        # one that has joined a moment ago may not be known to the client yet: then it is asked again
        until(lambda: not operations.observe(look()), "its setting is taken", poll_s=0.3)
        assert state() is BrokerLife.SERVING
        new = world.create([[3]])
        until(lambda: new in world.administration.describe_topics([new]), "the new topic", poll_s=0.1)
        assert world.replicas(Partition(new, 0)) == (3,)
        entries = [(entry.event, entry.after) for entry in operations.entries(3)]
    finally:
        mover.stop()
        thread.join()
        store.close()
        world.administration.close()
    assert entries[1:] == [
        (BrokerEvent.DRAIN, BrokerLife.DRAINING),
        (BrokerEvent.EMPTIED, BrokerLife.DRAINED),
        (BrokerEvent.REPAIR, BrokerLife.REPAIRING),
        (BrokerEvent.REPAIRED, BrokerLife.JOINING),
        (BrokerEvent.JOINED, BrokerLife.SERVING),
    ]


class Commands:
    """`rtolap fleet` on real brokers and ZooKeeper, with the cluster's token and without."""

    def __init__(self, brokers: Brokers, zookeeper: str, name: str, folder: Path) -> None:
        self._token = folder / "token"
        self._token.write_text(secrets.token_urlsafe(20))
        self.environment = {
            "RTOLAP_KAFKA": brokers.cluster.servers,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": f"/{name}",
            "RTOLAP_TOKEN_FILE": str(self._token),
            "RTOLAP_SESSION_TIMEOUT_S": "2",
        }

    def __call__(self, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
        return called(self.environment, "fleet", *arguments, stdin=stdin)

    def process(self, *arguments: str) -> CompletedProcess[str]:
        return ended(self.environment, "fleet", *arguments)

    def without_token(self, *arguments: str) -> CompletedProcess[str]:
        absent = {"RTOLAP_TOKEN_FILE": str(self._token.with_name("absent"))}
        return called({**self.environment, **absent}, "fleet", *arguments)

    def done(self, *arguments: str) -> Any:
        """The document of a command that ends well."""
        found = self(*arguments, "--json")
        assert found.returncode == 0, (arguments, found.stdout, found.stderr)
        return json.loads(found.stdout)

    def state(self, broker: int) -> str:
        """After what happened by itself is noted."""
        documents = {each["broker"]: each for each in self.done("brokers", "--note")}
        assert documents[broker]["problem"] is None
        return str(documents[broker]["state"])

    def audit(self, broker: int) -> list[tuple[str, str, str]]:
        entries = self.done("brokers", str(broker))
        return [(each["event"], each["by"], each["reason"]) for each in entries if each["event"]]


def test_commands_lead_a_broker_through_its_life_and_leave_who_and_why(
    lived: Brokers, zookeeper: str, unique_name: str, tmp_path: Path
) -> None:
    world = world_of(lived, unique_name)
    commands = Commands(lived, zookeeper, unique_name, tmp_path)
    spread, alone = world.create([[3, 1], [2, 3]]), world.create([[3]])
    why = ("--by", "ann", "--reason", "disk fails")

    def cordoned() -> bool:
        return any(log_dir.cordoned for log_dir in world.log_dirs(Partition(spread, 0), 3).values())

    def held() -> int:
        described = world.administration.describe_topics([spread, alone])
        return sum(3 in each.replicas for topic in described.values() for each in topic.partitions)

    assert commands("brokers").returncode == 0
    for refused in (
        commands.without_token("brokers"),  # what is kept of brokers is closed to who has none
        commands.without_token("brokers", "--note"),
        *(commands.without_token(name, "3", *why) for name in ("cordon", "repair", "retire")),
        commands.without_token("drain", "3", "--yes", *why),
        commands("retire", "3", *why),  # it serves
        commands("cordon", "99", *why),
        commands("cordon", "3"),  # no reason
    ):
        assert refused.returncode == (2 if "--reason" in refused.stderr else 1), refused
        assert refused.stdout == ""
        assert "Traceback" not in refused.stderr
    assert "token" in commands.without_token("cordon", "3", *why).stderr
    assert not cordoned()
    assert commands.audit(3) == []

    record = commands.done("cordon", "3", *why)
    assert (record["broker"], record["state"]) == (3, "CORDONED")
    until(cordoned, "the broker says so")
    stopped = commands("repair", "3", *why)
    assert stopped.returncode == 1
    assert f"{alone}:0" in stopped.stderr  # nobody else has it
    assert commands.done("uncordon", "3", *why)["state"] == "SERVING"
    until(lambda: not cordoned(), "the broker says so")

    declined = commands("drain", "3", *why, stdin="n\n")
    assert declined.returncode == 1
    assert f"\n{alone}\t0\t3:" in declined.stdout  # what it would move is shown before it is asked
    assert commands.state(3) == "SERVING"
    with MoverProcess(commands.environment, tmp_path / "mover.log"):
        drained = commands("drain", "3", "--yes", *why)
        assert drained.returncode == 0, drained
        assert "broker 3: DRAINING" in drained.stdout
        until(lambda: commands.state(3) == "DRAINED", "the broker is empty", poll_s=0.3)
    assert held() == 0
    requests = json.loads(commands("moves", "--audit", "--json").stdout)
    assert [(each["by"], "disk fails" in str(each)) for each in requests] == [("ann", True)]

    assert commands.done("repair", "3", *why)["state"] == "REPAIRING"
    lived.servers[3].stop()
    lived.wait_alive((1, 2))
    assert commands.done("repair", "3", "--done", *why)["state"] == "JOINING"
    lived.servers[3].start()
    lived.wait_alive((1, 2, 3))
    until(lambda: commands.state(3) == "SERVING", "it serves again", poll_s=0.3)

    assert commands.done("drain", "3", "--yes", *why)["state"] == "DRAINING"  # it holds nothing
    until(lambda: commands.state(3) == "DRAINED", "the broker is empty", poll_s=0.3)
    assert commands.done("retire", "3", *why)["state"] == "RETIRING"
    lived.servers[3].stop()
    lived.wait_alive((1, 2))
    until(lambda: commands.state(3) == "RETIRED", "it is gone", poll_s=0.3)
    assert commands("uncordon", "3", *why).returncode == 1
    assert "--host" in commands("join", "3", *why).stderr
    assert commands.done("join", "3", "--host", "another", *why)["state"] == "JOINING"
    lived.servers[3].start()
    lived.wait_alive((1, 2, 3))
    until(lambda: commands.state(3) == "SERVING", "the new machine's broker", poll_s=0.3)
    world.administration.close()

    told = commands.audit(3)
    asked = [event for event, by, _ in told if by == "ann"]
    assert asked == [
        *("CORDON", "UNCORDON", "DRAIN", "REPAIR", "REPAIRED"),
        *("DRAIN", "RETIRE", "ADD", "JOIN"),
    ]
    assert {reason for _, by, reason in told if by == "ann"} == {"disk fails"}
    observed = [event for event, by, _ in told if by == "observation"]
    assert observed == ["EMPTIED", "JOINED", "EMPTIED", "GONE", "JOINED"]
    shown = commands.process("brokers", "3")
    assert shown.returncode == 0
    assert shown.stdout.count("\tann\t") == len(asked)


REGISTRY = """kind: kafka_fleet
name: f
topics: [{match: ["*"], business: shop}]
clusters:
  default: {businesses: [shop], policy: {failed_disk: %s, slow_broker: propose}}
"""


def test_a_broker_whose_disk_fails_is_cordoned_and_drained_by_policy_and_before_that_only_proposed(
    lived: Brokers, zookeeper: str, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the module: the broker goes on without its second directory."""
    world = world_of(lived, unique_name)
    topic = world.create([[3, 1], [2, 3], [3, 2], [1, 3]])
    for number in range(4):
        world.fill(Partition(topic, number), 200_000)
    commands = Commands(lived, zookeeper, unique_name, tmp_path)
    for name, value in commands.environment.items():
        monkeypatch.setenv(name, value)
    registry, slow = tmp_path / "clusters.yaml", tmp_path / "slow.json"
    registry.write_text(REGISTRY % "propose")
    verdict = {"broker": 2, "request": "Produce", "is_slow": True, "since_ms": 0, "p99_ms": 900.0}
    slow.write_text(json.dumps({"rows": [{**verdict, "stage": "local"}]}))

    def policies(*arguments: str) -> tuple[int, list[tuple[Any, ...]]]:
        command = ("fleet", "policies", "default", "--registry", str(registry), *arguments, "--json")
        done = CliRunner().invoke(app, command)
        assert done.exit_code in (0, 3), (done.output, done.exception)
        fields = ("broker", "symptom", "operations", "applies")
        return done.exit_code, [tuple(each[name] for name in fields) for each in json.loads(done.stdout)]

    def brokers_of_topic() -> set[int]:
        described = world.administration.describe_topics([topic])[topic]
        return {broker for partition in described.partitions for broker in partition.replicas}

    both = ["CORDON", "DRAIN"]
    assert policies() == (0, [])
    assert policies("--slow", str(slow)) == (3, [(2, "slow_broker", both, False)])
    lost = lived.log_dirs(3)[1]
    lost.rename(lost.with_name("lost"))
    until(lambda: policies() == (3, [(3, "failed_disk", both, False)]), "the failed disk", poll_s=0.3)
    assert policies("--apply") == (3, [(3, "failed_disk", both, False)])  # the registry lets nothing be done
    assert commands.audit(3) == []
    assert 3 in brokers_of_topic()

    registry.write_text(REGISTRY % "apply")
    assert policies() == (3, [(3, "failed_disk", both, True)])  # nobody has asked for it
    assert commands.audit(3) == []
    refused = commands.without_token("policies", "default", "--registry", str(registry), "--apply")
    assert refused.returncode == 1
    assert "token" in refused.stderr
    with MoverProcess(commands.environment, tmp_path / "mover.log"):
        assert policies("--apply", "--by", "ann") == (0, [(3, "failed_disk", both, True)])
        until(lambda: commands.state(3) == "DRAINED", "the broker is empty", poll_s=0.3)
    assert brokers_of_topic() == {1, 2}
    why = f"policy failed_disk: offline log directories: {lost}"
    asked = [entry for entry in commands.audit(3) if entry[1] == "ann"]
    assert asked == [("CORDON", "ann", why), ("DRAIN", "ann", why)]
    assert policies("--slow", str(slow)) == (0, [(2, "slow_broker", [], False)])  # one is away already
    world.administration.close()
