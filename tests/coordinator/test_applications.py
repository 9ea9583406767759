"""Applications over REST, on memory stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.metadata.store import Create
from rtolap.protocols.watermark import messages as wire

from tests.support.cubes.coordinator_harness import HOUR_MS, Cluster
from tests.support.watermarks.application_reports import (
    NAME,
    application,
    counters,
    declared,
    now,
    registered,
    takeover,
)


def test_the_slowest_host_and_the_oldest_work_decide(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    reporter.progress(0, a=now(cluster, 1000), b=now(cluster, 3000))
    assert cluster.client.application_watermarks(NAME).global_ms is None, (
        "persisted and published by the tick"
    )
    cluster.coordinator.tick()
    marks = cluster.client.application_watermarks(NAME)
    assert marks.global_ms == marks.levels["store"].output_ms == now(cluster, 3000)
    reporter.progress(0, b=now(cluster, 500))
    unit = {"level": "sessions", "processor": "p", "key_group": 3, "oldest_work_ms": now(cluster, 2000)}
    answer = reporter.send(units=[unit])
    assert answer["refused"] == []
    cluster.coordinator.tick()
    marks = cluster.client.application_watermarks(NAME)
    assert marks.levels["sessions"].input_ms == now(cluster, 1000)
    assert marks.levels["sessions"].output_ms == marks.global_ms == now(cluster, 2000)
    reporter.send(units=[{**unit, "left": True}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 1000)


def test_columns_in_msgpack_say_the_same_as_names_in_json(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    epoch = reporter.send()["epoch"]
    source = wire.SourceReport(
        "web",
        0,
        0,
        ("b", "a"),
        0,
        np.array([1, 0], "<i4").tobytes(),
        np.array([now(cluster, 7), now(cluster, 9)], "<i8").tobytes(),
    )
    batch = wire.ReportBatch("c2", 1, epoch, True, (source,))
    response = cluster.http.post(
        f"/api/v1/applications/{NAME}/reports",
        content=msgspec.msgpack.encode(batch),
        headers={"Content-Type": wire.MSGPACK},
    )
    answer = msgspec.msgpack.decode(response.content, type=wire.ReportAnswer)
    assert (answer.resend, answer.refused) == (False, ())
    cluster.coordinator.tick()
    [slowest, _] = cluster.client.application_hosts(NAME).behind
    assert (slowest.host, slowest.behind_ms) == ("b", 9)


# -- sessions, takeovers ------------------------------------------------------------------------------------


def test_repeated_and_reordered_batches_change_nothing(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster, 50))
    newest, reporter.sequence = reporter.sequence, reporter.sequence - 2
    reporter.progress(0, a=now(cluster, 10))  # an earlier number comes late, with whatever it says
    assert reporter.sequence < newest
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 50)
    assert counters(cluster)["repeated_batches"] == 1


def test_a_batch_that_counts_on_names_never_said_is_answered_with_resend(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.send()
    reporter.sequence += 1
    source = {"level": "web", "partition": 0, "generation": 0, "hosts_from": 7, "index": "", "latest_ms": ""}
    assert reporter.post(sources=[source])["resend"]


def test_a_host_that_is_listed_late_is_asked_for_although_others_go_on(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")

    def columns(*hosts_ms: int) -> dict[str, Any]:
        index = np.arange(len(hosts_ms), dtype="<i4").tobytes()
        latest_ms = np.array(hosts_ms, "<i8").tobytes()
        names = ("a", "late") if reporter.sequence == 0 else ()
        source = wire.SourceReport("web", 0, 0, names, 0, index, latest_ms)
        reporter.sequence += 1
        batch = wire.ReportBatch("c1", reporter.sequence, reporter.epoch, reporter.sequence == 1, (source,))
        response = cluster.http.post(
            f"/api/v1/applications/{NAME}/reports", content=msgspec.json.encode(batch)
        )
        answer: dict[str, Any] = response.json()
        return answer

    reporter.epoch = cluster.client.application(NAME).epoch
    assert len(columns(now(cluster, 9), now(cluster, 8))["refused"]) == 1
    registered(cluster, "late")
    answer = columns(now(cluster, 5))
    assert (answer["refused"], answer["resend"]) == ([], True), "nothing new of the late one"


def test_a_former_generation_is_refused(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    source = {"level": "web", "partition": 0, "generation": 4, "progress": {"a": now(cluster, 9)}}
    reporter.send(sources=[source])
    [refusal] = reporter.send(sources=[{**source, "generation": 3, "progress": {"a": now(cluster)}}])[
        "refused"
    ]
    assert "generation 3 is over" in refusal["why"]
    assert counters(cluster)["stale_reports"] == 1


def test_a_new_leader_publishes_no_smaller_value_and_waits_for_who_was_known(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b")
    reporter.progress(0, a=now(cluster, 100))
    reporter.progress(1, b=now(cluster, 100))
    reporter.send(units=[{"level": "sessions", "processor": "p", "oldest_work_ms": now(cluster, 90)}])
    cluster.coordinator.tick()
    before = cluster.client.application_watermarks(NAME)
    assert before.global_ms == now(cluster, 100)
    takeover(cluster)
    after = cluster.client.application_watermarks(NAME)
    assert after.epoch > before.epoch
    assert after.global_ms == before.global_ms
    assert reporter.progress(0, a=now(cluster, 10), b=now(cluster, 10))["epoch"] == after.epoch
    cluster.coordinator.tick()
    held = cluster.client.application_watermarks(NAME)
    assert held.levels["web"].input_ms == before.global_ms, "partition 1 has not spoken again"
    assert "1 partitions have not reported" in " ".join(
        cluster.client.explain_window(NAME, now(cluster)).reasons
    )
    reporter.progress(1, b=now(cluster, 10))
    cluster.coordinator.tick()
    held = cluster.client.application_watermarks(NAME)
    assert held.levels["web"].input_ms == now(cluster, 10)
    assert held.global_ms == before.global_ms, "nor has the unit"
    reporter.send(units=[{"level": "sessions", "processor": "p", "oldest_work_ms": now(cluster, 20)}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 20)


def test_what_is_not_persisted_is_not_published(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster, 100))
    cluster.coordinator.tick()
    reporter.progress(0, a=now(cluster, 10))
    running = cluster.coordinator.applications.running(NAME)
    cluster.store.disconnect()
    with pytest.raises(Unavailable):
        running.tick()
    cluster.store.reconnect()
    assert running.published.marks.global_ms == now(cluster, 100)
    running.tick()
    assert running.published.marks.global_ms == now(cluster, 10)


# -- hosts, leases, lists -----------------------------------------------------------------------------------


def test_leases_end_drained_hosts_leave_and_new_ones_hold(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "dead")
    cluster.coordinator.tick()
    assert cluster.client.application_hosts(NAME).unseen == 2
    for _ in range(3):
        cluster.clock.advance_ms(30_000)
        registered(cluster, "a")
        reporter.progress(0, a=now(cluster, 5))
        cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 5), (
        "the lease of one has ended"
    )
    end_ms = now(cluster) + 1000
    registered(cluster, "b")
    cluster.client.change_hosts(NAME, "web", "drain", ["a"], end_ms=end_ms)
    reporter.progress(0, a=end_ms, b=end_ms + 500)
    cluster.coordinator.tick()
    cluster.coordinator.tick()
    info = cluster.client.application_hosts(NAME)
    assert (info.counting, info.watermark_ms) == (1, end_ms + 500)
    with pytest.raises(NotFound):
        cluster.client.change_hosts(NAME, "web", "remove", ["a"])
    cluster.client.change_hosts(NAME, "web", "remove", ["b"])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == end_ms + 500, "nobody listed: it stands"


def test_registered_hosts_are_known_to_the_next_leader(cluster: Cluster) -> None:
    declared(cluster)
    registered(cluster, *(f"host-{n}" for n in range(300)))
    takeover(cluster)
    info = cluster.client.application_hosts(NAME)
    assert (info.counting, info.unseen) == (300, 300)


def test_a_list_is_read_from_a_file_and_a_failure_keeps_the_last_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("# web\na\n\nb\n")
    reporter = declared(cluster, hosts={"file": str(listed), "refresh_ms": 1000, "grace_ms": 2000})

    def fetched() -> wire.HostsInfo:
        cluster.clock.advance_ms(1000)
        cluster.coordinator.tick()
        cluster.coordinator.applications.settle()
        return cluster.client.application_hosts(NAME)

    assert fetched().counting == 2
    for broken in ("", "a\nsecret : word\n"):
        listed.write_text(broken)
        info = fetched()
        assert info.counting == 2
        assert info.list_problem
        assert "secret" not in info.list_problem
    listed.unlink()
    assert "does not exist" in str(fetched().list_problem)
    assert "does not exist" in cluster.client.application(NAME).problems[0]
    listed.write_text("a\nc\n")
    info = fetched()
    assert (info.counting, info.list_problem) == (3, None), "b has its time of grace"
    fetched()
    assert fetched().counting == 2
    reporter.progress(0, a=now(cluster), c=now(cluster))
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster)


@pytest.mark.parametrize(
    "hosts",
    [
        {"file": "/etc/passwd"},
        {"file": "{folder}/../elsewhere"},
        {"file": "{folder}/link"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {"url": "http://lists.example.org/hosts"},
        {"url": "http://127.0.0.1:8080@elsewhere.example.org/hosts"},
    ],
)
def test_a_list_elsewhere_is_refused_where_it_is_declared(
    cluster: Cluster, tmp_path: Path, hosts: dict[str, str]
) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    named = {kind: place.replace("{folder}", str(tmp_path)) for kind, place in hosts.items()}
    with pytest.raises(DefinitionError):
        declared(cluster, hosts=named)
    assert not cluster.coordinator.applications.names()


def test_a_list_that_has_become_a_link_elsewhere_is_not_read(cluster: Cluster, tmp_path: Path) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("a\n")
    declared(cluster, hosts={"file": str(listed), "refresh_ms": 1000})
    listed.unlink()
    listed.symlink_to("/etc/hostname")
    cluster.clock.advance_ms(1000)
    cluster.coordinator.tick()
    cluster.coordinator.applications.settle()
    info = cluster.client.application_hosts(NAME)
    assert info.counting <= 1
    assert "no host list is read from" in str(info.list_problem)


def test_a_list_is_read_from_the_children_of_a_node(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.store.commit([Create(f"/services/web/{name}", b"", ephemeral=True)])
    declared(cluster, hosts={"zookeeper": "/services/web"})
    cluster.coordinator.tick()
    cluster.coordinator.applications.settle()
    assert cluster.client.application_hosts(NAME).counting == 2


def test_a_list_is_read_over_http(cluster: Cluster, served: Callable[[bytes], str]) -> None:
    declared(cluster, hosts={"url": served(b"a\nb\nc\n")})
    cluster.coordinator.tick()
    cluster.coordinator.applications.settle()
    assert cluster.client.application_hosts(NAME).counting == 3


@pytest.fixture
def served() -> Iterator[Callable[[bytes], str]]:
    """Serves these bytes from an address."""
    servers: list[HTTPServer] = []

    def serve(content: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/hosts"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


# -- why a window waits, and letting it go ------------------------------------------------------------------


def test_who_waits_is_told_for_whom_and_a_person_may_let_a_window_go(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a", "b", "c", "d")
    reporter.progress(
        0, a=now(cluster), b=now(cluster, 2_400_000), c=now(cluster, 8 * HOUR_MS), d=now(cluster, 7)
    )
    cluster.coordinator.tick()
    end_ms = now(cluster, 1000)
    said = cluster.client.explain_window(NAME, end_ms)
    assert not said.may_close
    assert "2 of 4 hosts behind by up to 8h: c, b" in said.reasons[0]
    assert [one.host for one in said.hosts["web"].behind] == ["c", "b"]
    assert "8 whole hours behind" in said.hosts["web"].behind[0].hint
    assert said.bound_ppm["web"] == 1_000_000, "without counts nothing can be promised"
    with pytest.raises(DefinitionError):
        cluster.client.approve_windows(NAME, end_ms, by=" ", reason="late data centre")
    with pytest.raises(DefinitionError, match="have ended"):
        cluster.client.approve_windows(NAME, now(cluster) + 1, by="ann", reason="hurry")
    cluster.client.approve_windows(NAME, end_ms, by="ann", reason="data centre is down")
    said = cluster.client.explain_window(NAME, end_ms)
    assert (said.may_close, said.approved) == (True, True)
    assert said.reasons[0].endswith("data centre is down")
    takeover(cluster)
    [approval] = cluster.client.application(NAME).approvals
    assert (approval.by, approval.until_ms) == ("ann", end_ms)
    marks = cluster.client.application_watermarks(NAME)
    assert marks.approved_until_ms == end_ms
    assert marks.global_ms is not None
    assert marks.global_ms < end_ms, "no watermark is lied about"


def test_a_source_without_a_host_list_goes_by_its_partitions(cluster: Cluster) -> None:
    reporter = declared(cluster, rule={"partitions": {}}, hosts=None)
    reporter.progress(0, anybody=now(cluster, 5), somebody=now(cluster, 3))
    reporter.progress(1, anybody=now(cluster, 9))
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 9)
    assert "partitions [1]" in " ".join(cluster.client.explain_window(NAME, now(cluster, 4)).reasons)


def test_units_whose_lease_ended_hold_nothing(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster, 5))
    reporter.send(units=[{"level": "store", "processor": "p", "oldest_work_ms": now(cluster, 500)}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == now(cluster, 500)
    assert "store: 1 units have older work" in " ".join(
        cluster.client.explain_window(NAME, now(cluster)).reasons
    )
    before_ms = now(cluster, 5)
    cluster.clock.advance_ms(30_001)
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == before_ms
    assert counters(cluster)["expired_units"] == 1


def test_a_dropped_application_leaves_nothing_to_one_of_the_same_name(cluster: Cluster) -> None:
    reporter = declared(cluster)
    registered(cluster, "a")
    reporter.progress(0, a=now(cluster))
    cluster.coordinator.tick()
    cluster.client.drop_application(NAME)
    assert cluster.client.applications() == []
    cluster.coordinator.tick()
    cluster.client.create_application(application())
    marks = cluster.client.application_watermarks(NAME)
    assert marks.global_ms is None
    assert cluster.client.application_hosts(NAME).counting == 0
