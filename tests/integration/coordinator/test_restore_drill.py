"""The drill of docs/operations/backup.md: ZooKeeper's data is lost and restored, and answers are exact.

A cube with history and two replica sets, and a stored table with loads; the cluster goes on for a while after
the backup. Services are killed, and find the disks that they had.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rtolap.protocols.coordinator.messages import ReassignRequest
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import SendOptions
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.zookeeper import zookeeper_spec

from tests.support import commands
from tests.support.cubes.service_world import PARTITIONS, World
from tests.support.cubes.services import Services, wait_for
from tests.support.servers import running
from tests.support.stored.stream_load_cluster import PASSWORD, TOKEN, USER, StreamLoadCluster

pytestmark = pytest.mark.integration

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
SETS = {"left": ("l0",), "right": ("r0",)}
CSV = SendOptions(format="csv", headers={"column_separator": ","}, timeout_s=60)
RESTORED = ("coordinator-0", "l0", "r0", "query")


@pytest.fixture
def own_zookeeper(java: JavaArtifacts, tmp_path: Path) -> Iterator[ManagedProcess]:
    with running(zookeeper_spec(java, tmp_path / "zookeeper", free_port())) as server:
        yield server


@pytest.fixture
def stored(owned: None, tmp_path: Path) -> Iterator[StreamLoadCluster]:
    folder = tmp_path / "stored"
    with StreamLoadCluster(folder, f"sqlite:///{folder / 'ledger.db'}") as cluster:
        cluster.start(endpoints=1, nodes=1)
        yield cluster


@pytest.fixture
def world(
    tmp_path: Path,
    own_zookeeper: ManagedProcess,
    stored: StreamLoadCluster,
    kafka: str,
    unique_name: str,
    create_topic: Callable[..., str],
) -> Iterator[World]:
    name = unique_name.replace("__", "_")
    create_topic(name, PARTITIONS)
    services = Services(
        tmp_path, zookeeper=own_zookeeper.address, root="/drill", kafka=kafka, coordinators=1, token=TOKEN
    )
    services.environment["RTOLAP_STREAM_LOAD_ENDPOINTS"] = ",".join(stored.urls)
    one = World(services, kafka, name, 11, SETS)
    with closing(services):
        services.start_coordinators()
        for replica_set in SETS:
            one.start_receivers(replica_set)
        services.start_query()
        one.declare()
        yield one


def counted_once(world: World) -> bool:
    """Return True if the answer holds every event that was sent. AssertionError for a wrong answer."""
    try:
        positions, answer = world.ask()
    except httpx.HTTPError:
        return False  # somebody is not ready: refused by name
    assert answer == world.expected(positions), f"wrong at {positions}"
    return positions == world.ends()


def versions(world: World) -> dict[str, int]:
    """Return the segments with a version, also those whose late events are on their way into the next one."""
    found = world.services.coordinator.segments(world.cube)
    return {each.segment: each.version for each in found if each.version}


def load(stored: StreamLoadCluster, label: str, first: int, rows: int) -> None:
    body = "".join(f"{at},{at % 7}\n" for at in range(first, first + rows))
    with StreamLoadClient(stored.urls, USER, PASSWORD) as client:
        assert client.load("web", "visits", label, body.encode(), CSV).status == "Success"


def visits(world: World) -> list[int]:
    return [int(cell) for cell in world.services.sql("SELECT COUNT(*), SUM(n) FROM web.visits")["rows"][0]]


def test_metadata_is_lost_and_restored_and_every_answer_is_exact(
    world: World, stored: StreamLoadCluster, own_zookeeper: ManagedProcess, tmp_path: Path
) -> None:
    services, client = world.services, world.services.coordinator
    rtolap = services.environment
    with StreamLoadClient(stored.urls, USER, PASSWORD):
        services.sql("CREATE DATABASE web")
        services.sql(
            "CREATE TABLE web.visits (id BIGINT NOT NULL, n BIGINT) DUPLICATE KEY(id) "
            "DISTRIBUTED BY HASH(id) BUCKETS 2"
        )
    load(stored, "first", 0, 1_000)
    client.reassign(world.cube, ReassignRequest(assignment={"left": (0, 1), "right": (2, 3)}, warm_up=False))
    world.produce(700)

    def build(at_least: int) -> None:
        wait_for("windows wait for a build", lambda: len(client.queue().entries) >= at_least, 90)
        wait_for("they are history", lambda: services.build_queue(JOBS) >= at_least, 200)

    build(2)
    backups = tmp_path / "backups"
    backups.mkdir()
    services.sql(world.sql)
    said = json.loads(commands.rtolap(rtolap, "backup", str(backups), "--json"))
    file = said["file"]
    assert said["header"]["records"] > 8
    before = versions(world)

    # the cluster goes on: events, late ones too, another build, other loads
    world.produce(700)
    build(2)
    load(stored, "second", 1_000, 500)
    wait_for("all is counted", lambda: counted_once(world), 90)
    later = versions(world)
    assert later != before

    refused = commands.ended(rtolap, "restore", file, "--overwrite", "/drill")
    assert refused.returncode == 1
    assert "services of this cluster run" in refused.stderr

    for name in sorted(services.running()):
        services.kill(name)
    for name in ("endpoint-0", "node-0"):
        stored.kill(name)
    own_zookeeper.kill()
    shutil.rmtree(tmp_path / "zookeeper" / "data")
    own_zookeeper.start()

    plan = json.loads(commands.rtolap(rtolap, "restore", file, "--plan", "--json"))
    assert not plan["restored"]
    taken = {each["subject"] for each in plan["findings"] if each["outcome"] == "taken"}
    newer = {name for name, version in later.items() if before.get(name) != version}
    assert taken == {f"segment {world.cube}/{name}" for name in newer}
    assert "start the services" in commands.rtolap(rtolap, "restore", file)
    again = commands.ended(rtolap, "restore", file)
    assert again.returncode == 1
    assert "the cluster is not empty" in again.stderr

    for name in ("endpoint-0", "node-0"):
        stored.restart(name)
    for name in RESTORED:
        services.start_again(name)
    wait_for("every event is counted once", lambda: counted_once(world), 120)
    assert versions(world) == later, "what was built after the backup is history again"
    wait_for("every row is there", lambda: visits(world) == [1_500, sum(at % 7 for at in range(1_500))], 60)

    world.produce(300)
    load(stored, "third", 1_500, 100)
    wait_for("what comes later is counted", lambda: counted_once(world), 90)
    assert visits(world) == [1_600, sum(at % 7 for at in range(1_600))]
