"""Each look says what is well and what is wrong, with what mends it, and none waits for ever."""

from __future__ import annotations

import builtins
import os
import random
import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import Unavailable
from rtolap.base.settings import Settings
from rtolap.doctor import kafka, services, zookeeper
from rtolap.doctor.examination import examine
from rtolap.doctor.findings import Finding, Look, look_at_all, ok
from rtolap.doctor.host import look_at_folder, look_at_java, look_at_open_files
from rtolap.doctor.host import looks as host_looks
from rtolap.doctor.storage import PROBES, look_at_store
from rtolap.kafka.administration.values import (
    BrokerDescription,
    ClusterDescription,
    ConfigKind,
    ConfigResource,
    PartitionDescription,
    TopicDescription,
)
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.messages import ClusterInfo, CubeStatus, ReceiverInfo

GIB = 1 << 30


def outcomes(found: Iterator[Finding] | Sequence[Finding]) -> list[tuple[str, str]]:
    each = list(found)
    assert all(bool(one.action) == (one.outcome != "ok") for one in each), "what is wrong says what to do"
    return [(one.subject, one.outcome) for one in each]


def test_findings_come_in_the_order_of_looks_and_a_look_that_hangs_fails() -> None:
    hanging = threading.Event()

    def hangs() -> tuple[Finding, ...]:
        hanging.wait(30)
        return ()

    def refuses() -> tuple[Finding, ...]:
        raise Unavailable("it is away", found="nothing", action="start it")

    looks = [Look("a", hangs), Look("b", refuses), Look("c", lambda: (ok("c", "well"),))]
    found = list(look_at_all(looks, 0.2))
    hanging.set()
    assert outcomes(found) == [("a", "failed"), ("b", "failed"), ("c", "ok")]
    assert "within 0.2 s" in found[0].found
    assert (found[1].found, found[1].action) == ("it is away: nothing", "start it")


def test_a_look_that_breaks_is_a_finding_and_hides_no_other() -> None:
    """Whatever it raises: settings of a host may be wrong in ways that no look has thought of."""
    kinds = [kind for _, kind in sorted(vars(builtins).items()) if isinstance(kind, type)]
    plain = [kind for kind in kinds if issubclass(kind, Exception)]
    plain = list({kind for kind in plain if not issubclass(kind, (UnicodeError, BaseExceptionGroup))})
    plain.sort(key=lambda kind: kind.__name__)
    random.Random(4).shuffle(plain)
    plain.remove(TimeoutError)  # an answer that did not come in its time
    assert len(plain) > 30

    def breaks(kind: type[Exception]) -> tuple[Finding, ...]:
        raise kind("such a thing")

    looks = [Look(kind.__name__, partial(breaks, kind)) for kind in plain]
    found = list(look_at_all([*looks, Look("c", lambda: (ok("c", "well"),))], 20))
    assert outcomes(found) == [*((kind.__name__, "failed") for kind in plain), ("c", "ok")]
    assert all(each.subject in each.found for each in found[:-1])


@pytest.mark.parametrize(("free", "outcome"), [(GIB // 2, "failed"), (2 * GIB, "warning"), (50 * GIB, "ok")])
def test_a_disk_without_room_is_named(tmp_path: Path, free: int, outcome: str) -> None:
    found = look_at_folder("disk", tmp_path / "not" / "yet", lambda _: (100 * GIB, 100 * GIB - free, free))
    assert outcomes(found) == [("disk", outcome)]


@pytest.mark.parametrize(
    ("limit", "outcome"), [(1024, "warning"), (65_536, "ok"), (resource.RLIM_INFINITY, "ok")]
)
def test_few_open_files_are_a_warning(limit: int, outcome: str) -> None:
    assert outcomes(look_at_open_files(limit)) == [("open files", outcome)]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [('openjdk version "17.0.2"', "ok"), ('openjdk version "11.0.2"', "warning"), ("broken", "warning")],
)
def test_java_has_to_be_new_enough(tmp_path: Path, said: str, outcome: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    assert outcomes(look_at_java(str(tmp_path))) == [("Java", outcome)]


def test_no_java_is_a_warning(tmp_path: Path) -> None:
    assert outcomes(look_at_java(str(tmp_path))) == [("Java", "warning")]


@pytest.mark.parametrize(("mode", "outcome"), [(0o600, "ok"), (0o644, "warning"), (None, "failed")])
def test_a_token_that_others_may_read_or_that_is_not_there_is_named_and_never_shown(
    tmp_path: Path, mode: int | None, outcome: str
) -> None:
    token = tmp_path / "token"
    if mode is not None:
        token.write_text("very-secret")
        token.chmod(mode)
    settings = Settings(data_dir=tmp_path, token_file=token, object_store=f"file://{tmp_path}")
    found = list(look_at_all(host_looks(settings), 20))
    (judged,) = [each for each in found if each.subject == "cluster token"]
    assert judged.outcome == outcome
    assert "very-secret" not in str(found)


def test_the_probe_in_the_object_store_goes(tmp_path: Path) -> None:
    assert outcomes(look_at_store(open_store(f"file://{tmp_path}"), "here")) == [("object store", "ok")]
    assert [path for path in tmp_path.rglob("*") if path.is_file() and PROBES in path.parts] == []


class Cluster:
    """A Kafka cluster as it is described to the look."""

    def __init__(self, *, fenced: bool = False) -> None:
        self.fenced = fenced
        self.leaders = {"good": 0, "headless": -1, "unclean": 0, "compacted": 0}

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 0, (BrokerDescription(0, "h", 1, None, fenced=self.fenced),))

    def describe_topics(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        def partition(leader: int) -> PartitionDescription:
            return PartitionDescription(number=0, leader=leader, replicas=(0,), in_sync=(0,))

        return {
            name: TopicDescription(name, False, (partition(leader),))
            for name, leader in self.leaders.items()
            if name in topics
        }

    def configs(
        self, resources: Sequence[ConfigResource], names: Sequence[str], *, inherited: bool
    ) -> dict[ConfigResource, dict[str, str]]:
        assert inherited, "what the broker declares for all topics counts"
        values = {
            "unclean": {"unclean.leader.election.enable": "true"},
            "compacted": {"cleanup.policy": "compact,delete"},
        }
        return {each: values.get(each.name, {}) for each in resources if each.kind is ConfigKind.TOPIC}


def test_topics_that_are_missing_headless_or_lose_records_are_named() -> None:
    topics = ["gone", "good", "headless", "unclean", "compacted"]
    assert outcomes(kafka.look_at_cluster("default", Cluster(), topics)) == [
        ("Kafka default", "ok"),
        ("topic gone of default", "failed"),
        ("topic good of default", "ok"),
        ("topic headless of default", "failed"),
        ("topic unclean of default", "warning"),
        ("topic compacted of default", "warning"),
    ]


def test_brokers_that_serve_nobody_are_named() -> None:
    assert outcomes(kafka.look_at_cluster("default", Cluster(fenced=True), [])) == [
        ("Kafka default", "warning")
    ]


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a service; its parameter: status, and seconds that its clock is ahead."""
    status, ahead_s = request.param

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(status)
            self.send_header(
                "Date", format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
            )
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("served", "outcome"),
    [((200, 0), "ok"), ((200, 60), "warning"), ((200, -60), "warning"), ((500, 0), "failed")],
    indirect=["served"],
)
def test_a_service_whose_clock_is_wrong_or_that_is_ill_is_named(served: str, outcome: str) -> None:
    assert outcomes(services.look_at_service("x", served, "start it")) == [("x", outcome)]


def free_address() -> str:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(("needed", "outcome"), [(True, "failed"), (False, "warning")])
def test_a_service_that_does_not_answer_fails_where_each_cluster_has_one(needed: bool, outcome: str) -> None:
    url = f"http://{free_address()}"
    assert outcomes(services.look_at_service("x", url, "start it", needed=needed)) == [("x", outcome)]


def test_receivers_and_cubes_that_need_a_person_are_named() -> None:
    def receiver(name: str, health: Any) -> ReceiverInfo:
        return ReceiverInfo(receiver_id=name, host="h", port=1, replica_set="rs-" + name, health=health)

    def cube(name: str, **fields: Any) -> CubeStatus:
        return CubeStatus(name=name, definition={}, enabled=True, paused=False, **fields)

    cluster = ClusterInfo(
        leader_url="http://c",
        coordinators=("http://c",),
        receivers=(receiver("a", "HEALTHY"), receiver("b", "DOWN"), receiver("c", "WARN")),
        replica_sets=(),
        cubes=(
            cube("fine", assignment={"rs-a": (0,), "rs-c": (1,), "rs-b": ()}),
            cube("alone", assignment={"rs-b": (0,)}),
            cube("ill", problem="its topic is gone"),
        ),
    )
    assert outcomes(services.look_at_cluster(cluster)) == [
        ("cluster", "ok"),
        ("receiver a", "ok"),
        ("receiver b", "failed"),
        ("receiver c", "warning"),
        ("cube alone", "failed"),
        ("cube ill", "failed"),
    ]


def test_an_upgrade_that_was_left_half_way_is_a_warning() -> None:
    def found(*programs: str) -> list[tuple[str, str]]:
        receivers = tuple(
            ReceiverInfo(
                receiver_id=f"r{n}", host="h", port=1, replica_set="a", health="HEALTHY", program=each
            )
            for n, each in enumerate(programs)
        )
        cluster = ClusterInfo(
            leader_url="http://c", coordinators=(), receivers=receivers, replica_sets=(), cubes=()
        )
        return [each for each in outcomes(services.look_at_cluster(cluster)) if each[0] == "versions"]

    assert found("1.0", "1.0") == found("", "") == []
    assert found("1.0", "1.1") == found("", "1.0") == [("versions", "warning")]


def test_a_zookeeper_that_says_nothing_of_itself_is_a_warning() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(4)
            connection.sendall(b"srvr is not executed because it is not in the whitelist.\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert outcomes(zookeeper.look_at_server(address)) == [(f"ZooKeeper {address}", "warning")]
        thread.join()


def test_where_nothing_runs_each_server_is_named_in_its_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    os.chmod(token, 0o600)
    ports = {
        name: int(free_address().rpartition(":")[2])
        for name in ("coordinator_port", "agent_port", "query_http_port", "stream_load_port")
    }
    settings = Settings(
        zookeeper=free_address(),
        kafka=free_address(),
        object_store=f"file://{tmp_path}",
        data_dir=tmp_path,
        token_file=token,
        **ports,  # type: ignore[arg-type]
    )
    found = {each.subject: each.outcome for each in examine(settings, each_s=3)}
    assert found[f"ZooKeeper {settings.zookeeper}"] == "failed"
    assert found["records in ZooKeeper"] == "failed"
    assert found["Kafka default"] == "failed"
    assert found["object store"] == "ok"
    assert found["cluster"] == "failed"
    assert found[f"agent http://127.0.0.1:{settings.agent_port}"] == "warning"
