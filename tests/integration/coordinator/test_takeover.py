"""Two coordinators as real processes on real ZooKeeper and Kafka."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.kafka.producer import KafkaAdmin
from rtolap.metadata import segments
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReceiverRecord
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.client import AsyncCoordinatorClient, CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.coordinator_harness import CUBE, HOUR_MS, TABLE, TOKEN
from tests.support.cubes.metadata_contract import eventually
from tests.support.hostile.cluster_store import store_of
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration

SESSION_S = 2.0
TAKEOVER_S = 10.0  # a session, an election and some patience with a busy machine


class Coordinators:
    def __init__(self, folder: Path, zookeeper: str, kafka: str, root: str) -> None:
        self.folder = folder
        (folder / "token").write_text(TOKEN)
        self.environment = {
            **os.environ,
            "RTOLAP_ZOOKEEPER": zookeeper,
            "RTOLAP_ZOOKEEPER_ROOT": root,
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_SESSION_TIMEOUT_S": str(SESSION_S),
            "RTOLAP_OBJECT_STORE": f"file://{folder}/store",
            "RTOLAP_DATA_DIR": str(folder / "data"),
            "RTOLAP_TOKEN_FILE": str(folder / "token"),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.client: CoordinatorClient | None = None

    def start(self) -> str:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with (self.folder / f"coordinator-{port}.log").open("wb") as log:
            self.processes[url] = subprocess.Popen(
                [sys.executable, "-m", "rtolap.cli.main", "coordinator", "serve"],
                env={**self.environment, "RTOLAP_COORDINATOR_PORT": str(port)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        probe = CoordinatorClient([url], TOKEN, retry_s=0)

        def answers() -> bool:
            assert self.processes[url].poll() is None, self.logs()
            try:
                return probe.health(url).zookeeper
            except Unavailable:
                return False

        eventually(answers, f"{url} answers", timeout_s=60)
        probe.close()
        return url

    def end(self, url: str, number: signal.Signals) -> int:
        process = self.processes.pop(url)
        process.send_signal(number)
        return process.wait(patience_s(30))

    def role(self, url: str) -> str:
        with CoordinatorClient([url], TOKEN, retry_s=0) as probe:
            return probe.health(url).role

    def leader(self) -> str:
        found: list[str] = []
        eventually(
            lambda: bool(found.extend(url for url in self.processes if self.role(url) == "leader") or found),
            "somebody leads",
        )
        return found[0]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(patience_s(30))


@pytest.fixture
def coordinators(tmp_path: Path, zookeeper: str, kafka: str, unique_name: str) -> Iterator[Coordinators]:
    coordinators = Coordinators(tmp_path, zookeeper, kafka, f"/{unique_name}")
    yield coordinators
    coordinators.stop()


@pytest.fixture
def metadata(coordinators: Coordinators) -> Iterator[ClusterMetadata]:
    store = store_of(coordinators.environment)
    yield ClusterMetadata(store, SystemClock())
    store.close()


def prepare(client: CoordinatorClient, metadata: ClusterMetadata, topic: str) -> str:
    metadata.register_receiver(ReceiverRecord("r1", "127.0.0.1", 7080, "rs1"))
    client.create_table({**TABLE, "topic": topic})
    client.create_cube(CUBE)
    return str(CUBE["name"])


def beat(client: CoordinatorClient, cube: str, watermark_ms: int) -> int | None:
    reports = {p: PartitionReport(position=1, watermark_ms=watermark_ms) for p in range(4)}
    report = CubeReport(state="CONSUMING", partitions=reports)
    request = HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={cube: report})
    try:
        return client.heartbeat(request).low_watermark_ms.get(cube)
    except RtolapError:
        return None


def test_a_killed_leader_is_replaced_and_nothing_is_taken_back(
    coordinators: Coordinators, metadata: ClusterMetadata, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=4)
    urls = [coordinators.start(), coordinators.start()]
    with CoordinatorClient(urls, TOKEN) as client:
        cube = prepare(client, metadata, topic)
        assert client.enable_cube(cube).assignment == {"rs1": (0, 1, 2, 3)}
        eventually(lambda: beat(client, cube, 5_000) == 5_000, "the watermark is published")
        window = SegmentRange(0, HOUR_MS)
        metadata.update_segment(
            cube, window, lambda record: segments.close(record, {0: 5}, now_ms=1, by="rs1")
        )
        leader = coordinators.leader()
        coordinators.end(leader, signal.SIGKILL)
        began_s = time.monotonic()
        assert client.segment(cube, window.name).state == "IMMUTABLE", "the client finds the standby"
        assert time.monotonic() - began_s < TAKEOVER_S
        assert coordinators.leader() != leader
        eventually(lambda: beat(client, cube, 3_000) == 5_000, "an older event time takes nothing back")
        again = coordinators.start()
        assert coordinators.role(again) == "standby"
        standby_first = [again, coordinators.leader()]
        with CoordinatorClient(standby_first, TOKEN) as through_standby:
            assert through_standby.cube(cube).enabled, "a standby sends its clients to the leader"

        async def poll() -> int | None:
            async with AsyncCoordinatorClient(standby_first, TOKEN) as polling:
                return (await polling.watermark(cube)).low_watermark_ms

        assert asyncio.run(poll()) == 5_000


def test_a_leader_that_ends_in_order_hands_over_at_once(coordinators: Coordinators) -> None:
    coordinators.environment["RTOLAP_SESSION_TIMEOUT_S"] = "10"  # longer than the hand-over may take
    urls = [coordinators.start(), coordinators.start()]
    leader = coordinators.leader()
    other = next(url for url in urls if url != leader)
    began_s = time.monotonic()
    exit_code = coordinators.end(leader, signal.SIGTERM)
    eventually(lambda: coordinators.role(other) == "leader", "the other leads", timeout_s=9.5)
    assert time.monotonic() - began_s < 10, "it has not waited for the session's end"
    assert exit_code == 0, coordinators.logs()
    assert TOKEN not in coordinators.logs()


def test_a_leader_that_was_stopped_for_longer_than_its_session_changes_nothing(
    coordinators: Coordinators, metadata: ClusterMetadata, create_topic: Callable[..., str]
) -> None:
    """Requests wait in its socket meanwhile: it takes them before it knows that its time is over."""
    topic = create_topic(partitions=2)
    urls = [coordinators.start(), coordinators.start()]
    former = coordinators.leader()
    other = next(url for url in urls if url != former)
    with CoordinatorClient(urls, TOKEN) as client:
        cube = prepare(client, metadata, topic)
        client.enable_cube(cube)
    coordinators.processes[former].send_signal(signal.SIGSTOP)
    answers: list[httpx.Response] = []
    asking = [
        threading.Thread(target=lambda: answers.append(resume(former, cube)), daemon=True) for _ in range(8)
    ]
    try:
        eventually(lambda: coordinators.role(other) == "leader", "the other leads")
        with CoordinatorClient([other], TOKEN) as client:
            assert client.pause_cube(cube).paused
        for thread in asking:
            thread.start()
        eventually(lambda: connections_to(former) == len(asking), "the requests wait in its socket")
    finally:
        coordinators.processes[former].send_signal(signal.SIGCONT)
    for thread in asking:
        thread.join(60)
    assert len(answers) == len(asking), coordinators.logs()
    for answer in answers:
        if answer.status_code == httpx.codes.TEMPORARY_REDIRECT:
            assert answer.headers["location"].startswith(other)
        else:
            assert (answer.status_code, answer.json()["code"]) == (503, "not_leader"), answer.text
    assert metadata.control(cube).paused, "what the present leader wrote stands"
    eventually(lambda: coordinators.role(former) == "standby", "it stands behind the other")
    with CoordinatorClient([former, other], TOKEN) as through_it:
        assert through_it.cube(cube).paused, "and sends its clients to the leader"


def connections_to(url: str) -> int:
    port = urlsplit(url).port
    mine = psutil.Process().net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr.port == port and one.status == "ESTABLISHED" for one in mine)


def resume(url: str, cube: str) -> httpx.Response:
    """Straight to one coordinator, following no redirect."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.post(f"{url}/api/v1/cubes/{cube}/resume", headers=headers, timeout=60)


def test_a_restart_of_zookeeper_is_ridden_out(
    coordinators: Coordinators,
    metadata: ClusterMetadata,
    zookeeper_server: ManagedProcess,
    create_topic: Callable[..., str],
) -> None:
    topic = create_topic(partitions=2)
    url = coordinators.start()
    with CoordinatorClient([url], TOKEN) as client:
        cube = prepare(client, metadata, topic)
        zookeeper_server.kill()
        eventually(lambda: coordinators.role(url) == "standby", "who has no session does not lead")
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(client.cube(cube).name))
        asking.start()
        zookeeper_server.start()
        asking.join(30)
        assert answers == [cube], coordinators.logs()


def test_a_partition_added_to_the_topic_is_assigned(
    coordinators: Coordinators, metadata: ClusterMetadata, kafka: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(partitions=2)
    url = coordinators.start()
    admin = KafkaAdmin(kafka)
    with CoordinatorClient([url], TOKEN) as client:
        cube = prepare(client, metadata, topic)
        assert client.enable_cube(cube).assignment == {"rs1": (0, 1)}
        admin.add_partitions(topic, 3)
        eventually(lambda: client.cube(cube).assignment == {"rs1": (0, 1, 2)}, "assigned", timeout_s=40)
        assert client.cube(cube).first_offsets[2] == 0
        admin.delete_topic(topic)
        eventually(lambda: "missing" in (client.cube(cube).problem or ""), "a visible state", timeout_s=40)
    admin.close()
