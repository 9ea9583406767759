"""Segments that close by an application's watermark, on real Kafka, ZooKeeper and processes.

Five hosts log to two partitions, in order. A window waits for the one that is behind, over a kill -9 of the
coordinator and of the receiver that reports; once that host is there it closes, with every event of the
window. One that a person lets go closes as it is, and says so.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Schema
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Column
from rtolap.protocols.coordinator.messages import SegmentInfo

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.day_stream import declare_cube
from tests.support.cubes.services import Services, wait_for
from tests.support.watermarks.definitions import hosts_source

pytestmark = [pytest.mark.integration]

HOSTS = tuple(f"host-{n}" for n in range(5))
LAST = HOSTS[-1]
STEP_MS = 1_000
LATENESS_MS = 5_000  # of `small_schema`


class Fleet:
    """Sends the events of hosts, each in order, and counts them by window."""

    def __init__(self, services: Services, kafka: str, name: str) -> None:
        schema = small_schema(name=name, table=name, watermark=CubeWatermark(name, "web", "cubes"))
        columns = (*schema.table.columns, Column("host", "string"))
        table = msgspec.structs.replace(
            schema.table, name=name, topic=name, columns=columns, host_column="host"
        )
        self.schema, self.name = Schema(table, schema.cube), name
        self.client = services.coordinator
        self.sent: Counter[int] = Counter()
        self._producer = KafkaProducer(kafka, client_id="test")
        self._reached = dict.fromkeys(HOSTS, START_MS)

    def declare(self) -> None:
        self.client.create_application(
            {
                "name": self.name,
                "sources": [hosts_source("web")],
                "sinks": [{"name": "cubes"}],
                "edges": [["web", "cubes"]],
            }
        )
        self.client.change_hosts(self.name, "web", "register", HOSTS)
        declare_cube(self.client, self.schema.table, self.schema.cube)

    def log(self, host: str, until_ms: int) -> None:
        """An event a second up to that instant, in the host's partition."""
        number = HOSTS.index(host)
        while self._reached[host] < until_ms:
            at_ms = self._reached[host] + number
            body = {"ts": at_ms, "kind": "a", "amount": 1, "host": host}
            self._producer.produce(self.name, [OutRecord(json.dumps(body).encode(), partition=number % 2)])
            self.sent[at_ms // WINDOW_MS * WINDOW_MS] += 1
            self._reached[host] += STEP_MS
        self._producer.flush(30)

    def progress_known(self, host: str) -> bool:
        """Has the server been told of the host's newest event, and of every partition?"""
        info = self.client.application_hosts(self.name, "web", limit=len(HOSTS))
        newest = self._reached[host] - STEP_MS + HOSTS.index(host)
        known = {one.host: one.latest_ms for one in info.behind}
        return not info.awaited_partitions and known.get(host) == newest

    def segment(self, number: int) -> SegmentInfo:
        start_ms = START_MS + number * WINDOW_MS
        return self.client.segment(self.name, SegmentRange(start_ms, start_ms + WINDOW_MS).name)

    def uploaded(self, number: int) -> bool:
        return self.segment(number).state == "REMOTE_PERSISTED"

    def leader(self) -> str | None:
        return next(one.leader for one in self.client.replica_sets() if one.name == "only")

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def services(tmp_path_factory: pytest.TempPathFactory, zookeeper: str, kafka: str) -> Iterator[Services]:
    folder, root = tmp_path_factory.mktemp("services"), f"/by-application-{uuid.uuid4().hex}"
    one = Services(folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=2)
    try:
        one.start_coordinators()
        for name in ("r0", "r1"):
            one.start_receiver(name, "only", "--checkpoint-interval-s", "1")
        one.coordinator.put_replica_set("only", ["r0", "r1"])
        wait_for("the receivers live", lambda: len(one.coordinator.receivers()) == 2)
        yield one
    finally:
        one.close()


@pytest.fixture
def fleet(
    services: Services, kafka: str, unique_name: str, create_topic: Callable[..., str]
) -> Iterator[Fleet]:
    create_topic(unique_name, 2)
    one = Fleet(services, kafka, unique_name)
    one.declare()
    yield one
    one.close()


def test_a_window_waits_for_its_hosts_whoever_is_killed(services: Services, fleet: Fleet) -> None:
    client, name = fleet.client, fleet.name
    for host in HOSTS:
        fleet.log(host, START_MS + (WINDOW_MS // 2 if host == LAST else 3 * WINDOW_MS))
    wait_for("the server knows how far the last host is", lambda: fleet.progress_known(LAST))
    assert fleet.segment(0).state == "ACTIVE"
    explained = client.explain_window(name, START_MS + WINDOW_MS)
    assert not explained.may_close
    assert LAST in explained.reasons[0]

    leader = fleet.leader()
    assert leader is not None
    services.kill(leader)
    other = ({"r0", "r1"} - {leader}).pop()
    wait_for("the other one leads", lambda: fleet.leader() == other)
    coordinator = services.leading_coordinator()
    assert coordinator is not None
    services.kill(coordinator)
    wait_for("the other coordinator leads", lambda: services.leading_coordinator() not in (None, coordinator))
    wait_for("it knows as much again", lambda: fleet.progress_known(LAST))
    assert fleet.segment(0).state == "ACTIVE"
    services.start_again(leader)

    fleet.log(LAST, START_MS + WINDOW_MS + WINDOW_MS // 2)
    wait_for("the first window is closed and uploaded", lambda: fleet.uploaded(0))
    closed = fleet.segment(0)
    assert closed.staged_events == fleet.sent[START_MS], "every event of the window"
    known = closed.completeness
    assert known is not None
    assert (known.application, known.closed_by, known.approved_by) == (name, "watermark", None)
    assert (known.expected_missing_ppm, known.bound_ppm) == (0, 0)
    assert known.watermark_ms is not None
    assert known.watermark_ms >= closed.end_ms + LATENESS_MS
    assert fleet.segment(1).state == "ACTIVE", "the last host is in the middle of the next"

    (entry,) = client.queue().entries
    assert entry.completeness == known
    assert client.start_build(name, closed.segment).completeness == known


def test_a_window_that_a_person_lets_go_closes_as_it_is_and_says_so(fleet: Fleet) -> None:
    client, name = fleet.client, fleet.name
    for host in HOSTS:
        fleet.log(host, START_MS + (WINDOW_MS // 2 if host == LAST else 3 * WINDOW_MS))
    wait_for("the server knows how far the last host is", lambda: fleet.progress_known(LAST))
    assert fleet.segment(0).state == "ACTIVE"

    until_ms = START_MS + WINDOW_MS
    client.approve_windows(name, until_ms, "erika", "it burned down")
    wait_for("the first window is closed and uploaded", lambda: fleet.uploaded(0))
    closed = fleet.segment(0)
    assert closed.staged_events == fleet.sent[START_MS]
    known = closed.completeness
    assert known is not None
    assert (known.closed_by, known.approved_by, known.window_end_ms) == ("approval", "erika", until_ms)
    assert known.expected_missing_ppm is not None
    assert known.expected_missing_ppm > 0, "one of five hosts owes half a window"
    assert "approval of erika" in closed.state_history[0].note
    assert fleet.segment(1).state == "ACTIVE", "nobody let the next one go"


def test_a_forced_closing_says_so(fleet: Fleet) -> None:
    for host in HOSTS[1:]:
        fleet.log(host, START_MS + 2 * WINDOW_MS)
    wait_for("the server knows how far they are", lambda: fleet.progress_known(LAST))
    fleet.client.close_segment(fleet.name, fleet.segment(0).segment)
    wait_for("the first window is closed and uploaded", lambda: fleet.uploaded(0))
    known = fleet.segment(0).completeness
    assert known is not None
    assert (known.closed_by, known.approved_by) == ("forced", None)
    assert fleet.segment(0).staged_events == fleet.sent[START_MS]
