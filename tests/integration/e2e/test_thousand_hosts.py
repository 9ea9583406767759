"""A thousand hosts on a real Kafka, a twentieth of them stalled; Airflow builds what the watermark closes.

Two receivers report as source and sink of their cube, the coordinator decides by the deficit rule, the
shipped DAG builds. Hosts stall twice: a few that carry less than the bound, for which no window waits, and
fifty that carry more, for which one does, also when the receiver that has read and reported is killed.
They are let go by what the cluster did, not by time: a window that waited for the few would wait for ever.

What can be resolved: a window has 200 000 events, of which 1 000 ppm are 200; three deviations of chance
set aside, 162 may be expected to be missing (m + 3·√m = 200). A host that logs an event every two seconds
owes 5 a window, and up to 12 by an estimate from half a minute: five such hosts are well below. At 100 ppm
10 would be left, less than one of them may owe; a host of the mean rate owes 200.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rtolap.base.clock import SystemClock
from rtolap.cubes.format.manifest import HistoryManifest
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.protocols.coordinator.messages import SegmentInfo

from tests.support.airflow_stack import AirflowStack, airflow_stack
from tests.support.watermarks.access_logs import AccessLogs, Window, finished_manifests, write_host_list
from tests.support.watermarks.host_events import fleet
from tests.support.watermarks.host_stalls import Played, Stalls
from tests.support.watermarks.host_stream import HostStream

pytestmark = [pytest.mark.integration, pytest.mark.e2e]

PROJECT = Path(__file__).resolve().parents[3]
DEFINITIONS = Path(__file__).with_name("access_logs.yaml")
BUILD = "rtolap_segment_build"
SEED, HOSTS, STALLED, PARTITIONS, EVENTS_PER_S = 5, 1_000, 50, 8, 20_000.0
HISTORY_DEADLINE_S = 450.0  # builds of a busy machine take a minute each
PPM = 1_000_000


class Run(NamedTuple):
    airflow: AirflowStack
    logs: AccessLogs
    stream: HostStream
    played: Played

    def segment(self, window: Window) -> SegmentInfo:
        found = self.logs.segment(window)
        assert found is not None, f"window {window.number} has no segment"
        return found

    def first_versions(self) -> Iterator[tuple[Window, HistoryManifest]]:
        for window in self.played.windows:
            manifest = self.manifest(window, 1)
            assert (manifest.late_events, manifest.late_ppm) == (0, 0)
            yield window, manifest

    def manifest(self, window: Window, version: int) -> HistoryManifest:
        found = finished_manifests(self.airflow.around.layout.store, self.segment(window), version)
        assert found, f"window {window.number} has no version {version}"
        assert len({one.events for one in found}) == 1, "every attempt has built the same"
        return found[0]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, zookeeper: str, kafka: str) -> Iterator[AirflowStack]:
    """With two receivers in one replica set, and the DAG that builds."""
    root = tmp_path_factory.mktemp("thousand-hosts")
    include = root / "include"
    include.mkdir()
    dags = [PROJECT / "dags" / name for name in ("receivers.py", "segment_build.py")]
    node = f"/thousand-hosts-{time.time_ns()}"
    with airflow_stack(root / "stack", dags, include, zookeeper=zookeeper, kafka=kafka, node=node) as stack:
        stack.unpause("rtolap_receivers")

        def both() -> bool | None:
            found = [one.health for one in stack.coordinator.receivers()]
            return True if found == ["HEALTHY"] * 2 else None

        stack.until("two healthy receivers", both)
        stack.unpause(BUILD)
        yield stack


def kill_leader(airflow: AirflowStack) -> None:
    """SIGKILL to the receiver that leads, until the other one does."""

    def leader() -> str | None:
        return next((one.receiver_id for one in airflow.coordinator.receivers() if one.is_leader), None)

    former = airflow.until("leader of the replica set", leader)
    pid = airflow.agent.get(f"receiver.{former}").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    airflow.until("follower that leads", lambda: True if leader() not in (None, former) else None)


@pytest.fixture(scope="module")
def run(airflow: AirflowStack, kafka: str) -> Iterator[Run]:
    topic, clock = f"access_logs_{time.time_ns()}", SystemClock()
    KafkaAdmin(kafka).create_topic(topic, PARTITIONS)
    hosts = fleet(SEED, hosts=HOSTS, partitions=PARTITIONS, events_per_s=EVENTS_PER_S, quiet=STALLED // 2)
    host_list = Path(airflow.around.settings["RTOLAP_INCLUDE_DIR"]) / "hosts.txt"  # where lists are read from
    write_host_list(host_list, hosts.names)
    logs = AccessLogs(
        DEFINITIONS, topic=topic, host_list=host_list, coordinator=airflow.coordinator, ask=airflow.sql
    )
    logs.define()
    producer = KafkaProducer(kafka)
    start_ms = -(-clock.now_ms() // logs.window_ms) * logs.window_ms
    stream = HostStream(hosts, producer, topic, clock, start_ms=start_ms, window_ms=logs.window_ms)
    stream.start()

    def in_history() -> bool | None:
        found = ((logs.segment(window), stream.logged(window.number)) for window in played.windows)
        return True if all(info is not None and info.events == logged for info, logged in found) else None

    try:
        played = Stalls(logs, stream, clock).play(STALLED, while_waiting=lambda: kill_leader(airflow))
        airflow.until("everything in history", in_history, HISTORY_DEADLINE_S)
        yield Run(airflow, logs, stream, played)
    finally:
        stream.finish()
        producer.close()


def test_each_first_version_is_as_complete_as_its_manifest_says(run: Run) -> None:
    for window, manifest in run.first_versions():
        known, logged = manifest.completeness, run.stream.logged(window.number)
        assert known is not None
        assert (known.application, known.closed_by) == (run.logs.application.name, "watermark")
        assert known.window_end_ms == window.end_ms
        assert known.bound_ppm is not None
        assert known.bound_ppm <= run.logs.allowed_ppm
        missing_ppm = -(-(logged - manifest.events) * PPM // logged)
        assert missing_ppm <= known.bound_ppm, f"window {window.number}"
        closed_ms = run.logs.closed_ms(window)
        assert closed_ms is not None
        assert manifest.events <= run.stream.sent(window.number, closed_ms)


def test_no_window_waits_for_stalled_hosts_that_carry_less_than_the_bound(run: Run) -> None:
    assert len({one.window for one in run.played.few}) == len(run.played.few) > 0
    first = dict(run.first_versions())
    for window, unsent in run.played.few:
        assert unsent > 0
        assert first[window].events <= run.stream.logged(window.number) - unsent


def test_a_window_waits_for_stalled_hosts_that_carry_more(run: Run) -> None:
    window, hosts, explained, released_ms = run.played.many
    assert explained.expected_missing_ppm["web_servers"] > run.logs.allowed_ppm
    assert {one.host for one in explained.hosts["web_servers"].behind} <= hosts
    assert any(name in reason for name in hosts for reason in explained.reasons)
    closed_ms = run.logs.closed_ms(window)
    assert closed_ms is not None
    assert closed_ms >= released_ms


def test_late_events_are_counted_and_make_up_the_rest_exactly(run: Run) -> None:
    late = 0
    for window, first in run.first_versions():
        segment, logged = run.segment(window), run.stream.logged(window.number)
        newest = run.manifest(window, segment.version)
        late_events = logged - first.events
        late_ppm = -(-late_events * PPM // logged)
        assert (segment.state, segment.events, newest.events) == ("READY", logged, logged)
        assert (segment.late_events, segment.late_ppm) == (late_events, late_ppm)
        assert (newest.late_events, newest.late_ppm) == (late_events, late_ppm)
        assert newest.completeness == first.completeness, "what was known when it closed stays as it was"
        assert (segment.version > 1) == (late_events > 0)
        late += late_events
    assert late >= sum(one.unsent for one in run.played.few) > 0


def test_every_answer_is_the_recount_of_what_was_sent(run: Run) -> None:
    assert run.stream.ledger.total > len(run.played.windows) * EVENTS_PER_S * run.logs.window_ms / 1000 * 0.9
    found = run.airflow.until("whole answer", lambda: run.logs.answer(run.stream.ledger.ends))
    assert found == run.stream.ledger.recount()


def test_airflow_built_all_of_it(run: Run) -> None:
    runs = run.airflow.runs(BUILD)
    assert {one["run_type"] for one in runs} == {"asset_triggered"}
    for window in run.played.windows:
        assert "PROMOTE" in [line.event for line in run.segment(window).state_history]

    def has_succeeded() -> bool | None:
        return any(task["state"] == "success" for task in run.airflow.tasks(BUILD, task_id="build")) or None

    run.airflow.until("build that has succeeded", has_succeeded)  # its task ends after the last promotion
