"""A look at a cluster: each queue's columns, what queues wait for, and which source is missing."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import msgspec
import pytest
from rtolap.base.errors import NotFound
from rtolap.sep.status.collect import collect
from rtolap.sep.status.jmx import JmxReader, parse_jmx
from rtolap.sep.status.model import (
    DISABLED,
    FAILING,
    NO_SINKS,
    NOTHING,
    STANDING,
    STOPPED,
    QueueStatus,
    ReplicationStatus,
)
from rtolap.sep.status.sources import LogSizes, WalSizes
from rtolap.sep.status.summary import summarize
from rtolap.sep.status.tables import queue_row, summary_row

from tests.support.sep.replication_looks import REPORTED_MS, SERVERS, LookedAtCluster, log_name

FIRST, SECOND, THIRD = SERVERS
NOW_MS = REPORTED_MS + 500


@pytest.fixture
def cluster() -> LookedAtCluster:
    return LookedAtCluster()


def _behind(cluster: LookedAtCluster, *, shipped: int = 7, reported_ms: int = REPORTED_MS) -> None:
    """FIRST has three logs of `orders` of which it ships the first, SECOND has shipped all."""
    cluster.master.status.Clear()
    cluster.queue(FIRST, "orders", {1000: 250, 2000: None, 3000: None})
    cluster.queue(SECOND, "orders", {1500: 900})
    cluster.report(
        FIRST,
        "orders",
        sizeOfLogQueue=3,
        replicationLag=4000,
        timeStampOfNextToReplicate=REPORTED_MS - 4000,
        timeStampOfLastShippedOp=REPORTED_MS - 9000,
        ageOfLastShippedOp=30,
        oPsShipped=shipped,
    )
    cluster.report(SECOND, "orders", sizeOfLogQueue=1, timeStampOfLastShippedOp=REPORTED_MS - 2000)
    for live in cluster.master.status.live_servers:
        live.server_load.report_end_time = reported_ms


def _look(cluster: LookedAtCluster, before: ReplicationStatus | None = None) -> ReplicationStatus:
    return collect(cluster.sources(), NOW_MS, before=before)


def _first(status: ReplicationStatus) -> QueueStatus:
    return next(row for row in status.queues if row.server == str(FIRST))


def _logs(folder: Path) -> WalSizes:
    for server, name, size in (
        (f"WALs/{FIRST}", log_name(FIRST, 2000), 500),
        (f"WALs/{FIRST}", log_name(FIRST, 3000), 70),
        ("oldWALs", log_name(FIRST, 1000), 1000),
        (f"WALs/{SECOND}", log_name(SECOND, 1500), 900),
    ):
        path = folder / server / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    return WalSizes(folder.as_uri())


def test_every_column_comes_from_its_source(cluster: LookedAtCluster, tmp_path: Path) -> None:
    cluster.add_peer("orders", sinks=3)
    _behind(cluster)
    status = collect(cluster.sources(wal_sizes=_logs(tmp_path)), NOW_MS)
    assert (status.servers, status.peers[0].sinks, status.peers[0].enabled) == (3, 3, True)
    row, caught_up = status.queues
    assert (row.logs, row.further_bytes, row.log_bytes, row.position_bytes) == (3, 570, 1000, 250)
    assert (row.progress, row.remaining_bytes) == (0.25, 570 + 750)
    assert (row.lag_ms, row.last_shipped_age_ms, row.shipped_ops) == (4000, 30, 7)
    assert row.last_shipped_ms == REPORTED_MS - 9000
    assert (row.reason, row.since_ms) == (None, None)
    assert (caught_up.progress, caught_up.remaining_bytes) == (1.0, 0)
    assert (caught_up.reason, caught_up.since_ms) == (NOTHING, 2500)
    assert [missing.source for missing in status.missing] == ["JMX"]


def test_logs_that_are_written_on_hdfs_have_at_least_the_sizes_that_are_told(
    cluster: LookedAtCluster, tmp_path: Path
) -> None:
    cluster.add_peer("orders", sinks=1)
    _behind(cluster)
    cluster.queue(THIRD, f"orders-{FIRST}", {1000: 250})
    on_disk = _logs(tmp_path)

    class OnHdfs(WalSizes):
        def read(self) -> LogSizes:
            told = on_disk.read()
            sizes = told.bytes_by_log | {log_name(FIRST, 3000): 64, log_name(SECOND, 1500): 0}
            return told._replace(bytes_by_log=sizes, is_exact_while_written=False)

    status = collect(cluster.sources(wal_sizes=OnHdfs("file:///unused")), NOW_MS)
    row, open_log, recovered = status.queues
    assert (row.progress, row.further_bytes, row.is_further_lower_bound) == (0.25, 564, True)
    assert queue_row(row)[4:6] == ("at least 564 B", "25%")
    assert (open_log.log_bytes, open_log.position_bytes, open_log.progress) == (900, 900, None)
    assert queue_row(open_log)[4:6] == ("0 B", "900 B of at least 900 B")
    assert (recovered.progress, recovered.is_remaining_lower_bound) == (0.25, False)
    (peer,) = summarize(status, msgspec.structs.replace(status, at_ms=status.at_ms - 1000))
    assert peer.is_remaining_lower_bound
    assert (peer.remaining_trend_bytes_s, peer.catch_up_ms) == (None, None)
    assert summary_row(peer)[7] == "at least 1.3 KiB / 750 B / 2.0 KiB"


def test_a_log_that_is_read_further_than_its_size_says_has_no_progress() -> None:
    row = QueueStatus(peer="p", server="s", queue="p", log_bytes=100, position_bytes=300, further_bytes=5)
    assert (row.progress, row.remaining_bytes) == (None, 5)


def test_recovered_queues_are_shown_with_the_servers_that_had_them(cluster: LookedAtCluster) -> None:
    cluster.add_peer("orders", sinks=1)
    cluster.queue(SECOND, f"orders-{FIRST}-{THIRD}", {1000: 10})
    cluster.queue(SECOND, "orders", {2000: None})
    own, recovered = _look(cluster).queues
    assert own.recovered_from == ()
    assert recovered.recovered_from == (str(THIRD), str(FIRST))
    assert recovered.server == str(SECOND)


@pytest.mark.parametrize(
    ("sinks", "enabled", "running", "reason"),
    [(1, False, True, DISABLED), (0, True, True, NO_SINKS), (1, True, False, STOPPED), (1, True, True, None)],
)
def test_what_keeps_a_queue_is_named(
    cluster: LookedAtCluster, sinks: int, enabled: bool, running: bool, reason: str | None
) -> None:
    cluster.add_peer("orders", sinks=sinks, enabled=enabled)
    _behind(cluster)
    cluster.master.status.live_servers[0].server_load.replLoadSource[0].running = running
    row = _first(_look(cluster))
    assert row.reason == reason
    assert row.since_ms == (None if reason is None else 4500)


def test_a_queue_that_stands_still_between_two_reports_is_told_from_one_that_moves(
    cluster: LookedAtCluster,
) -> None:
    cluster.add_peer("orders", sinks=1)
    _behind(cluster)
    before = _look(cluster)
    assert _first(_look(cluster, before)).reason is None  # no report since
    _behind(cluster, reported_ms=REPORTED_MS + 300)
    assert _first(_look(cluster, before)).reason == STANDING
    _behind(cluster, shipped=8, reported_ms=REPORTED_MS + 300)
    assert _first(_look(cluster, before)).reason is None


def test_further_logs_are_nothing_to_replicate_once_a_source_has_looked_into_them(
    cluster: LookedAtCluster,
) -> None:
    cluster.add_peer("orders", sinks=1)
    cluster.queue(FIRST, "orders", {1000: None, 2000: None})
    cluster.report(FIRST, "orders", sizeOfLogQueue=1, replicationLag=0)
    before = _look(cluster)
    assert _first(before).reason is None
    assert _first(_look(cluster, before)).reason is None  # no report since
    cluster.master.status.live_servers[0].server_load.report_end_time = REPORTED_MS + 300
    assert _first(_look(cluster, before)).reason == NOTHING


def _page(failed: int) -> bytes:
    """As a region server of HBase 2.6 writes it."""
    bean = {
        "name": "Hadoop:service=HBase,name=RegionServer,sub=Replication",
        "tag.Hostname": "h0",
        "source.failedBatches": 99,
        "source.orders.failedBatches": failed,
        "source.orders.shippedOps": 12,
        "Source.orders.ageOfLastShippedOp_mean": 0.5,
        f"source.orders-{THIRD}.failedBatches": 1,
    }
    return json.dumps({"beans": [bean]}).encode()


def test_counters_are_read_by_queue_also_where_hosts_have_dots() -> None:
    counters = parse_jmx(_page(3))
    assert set(counters) == {"orders", f"orders-{THIRD}"}
    assert counters["orders"].failed_batches == 3


def test_failing_calls_are_told_by_the_pages_of_servers(
    cluster: LookedAtCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"h0.example.com": _page(3), "shared": _page(3)}

    def get(client: httpx.Client, url: str) -> httpx.Response:
        host = httpx.URL(url).host
        if host not in answers:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=answers[host], request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx.Client, "get", get)
    cluster.add_peer("orders", sinks=1)

    def look(before: ReplicationStatus | None, *shared_urls: str) -> ReplicationStatus:
        reader = JmxReader(shared_urls)
        try:
            return collect(cluster.sources(jmx=reader), NOW_MS, before=before)
        finally:
            reader.close()

    _behind(cluster)
    for live, port in zip(cluster.master.status.live_servers, (16030, 16031), strict=True):
        live.server_load.info_server_port = port
    before = look(None)
    assert [row.failed_batches for row in before.queues] == [3, None]
    assert [missing.reason for missing in before.missing if missing.source == "JMX"] == [
        "http://h1.example.com:16031: refused"
    ]
    answers["h0.example.com"] = _page(5)
    assert _first(look(before)).reason == FAILING
    # a page of all servers of a JVM tells of the peer, not of the queues that several have
    cluster.master.status.Clear()
    _behind(cluster)
    before = look(None, "http://shared:1")
    assert [row.failed_batches for row in before.queues] == [None, None]
    assert before.peers[0].failed_batches == 3
    answers["shared"] = _page(4)
    assert _first(look(before, "http://shared:1")).reason == FAILING


def test_each_source_that_is_missing_is_named_and_the_others_serve(cluster: LookedAtCluster) -> None:
    cluster.add_peer("orders", sinks=1)
    cluster.add_peer("far", zookeeper="elsewhere:2181")
    _behind(cluster)
    status = collect(cluster.sources(wal_sizes=WalSizes("file:///nowhere")), NOW_MS)
    assert {missing.source for missing in status.missing} == {"sinks of far", "sizes of logs", "JMX"}
    assert [peer.sinks for peer in status.peers] == [None, 1]
    cluster.master.silent = True
    status = _look(cluster)
    assert {"peers", "GetClusterStatus"} <= {missing.source for missing in status.missing}
    row = _first(status)
    assert (row.logs, row.position_bytes, row.lag_ms) == (3, 250, None)


def test_queues_that_are_in_no_node_are_known_by_the_reports(cluster: LookedAtCluster) -> None:
    cluster.add_peer("orders", sinks=1)
    cluster.report(FIRST, f"orders-{THIRD}", sizeOfLogQueue=2, replicationLag=10)
    (row,) = _look(cluster).queues
    assert (row.peer, row.logs, row.recovered_from, row.lag_ms) == ("orders", 2, (str(THIRD),), 10)


def test_peers_are_chosen_and_unknown_ones_refused(cluster: LookedAtCluster) -> None:
    cluster.add_peer("a")
    cluster.add_peer("b")
    for name in ("a", "b"):
        cluster.queue(FIRST, name, {1000: None})
        cluster.report(FIRST, name)
    assert {row.peer for row in collect(cluster.sources(), NOW_MS, only=["b"]).queues} == {"b"}
    with pytest.raises(NotFound, match="no peer c"):
        collect(cluster.sources(), NOW_MS, only=["c"])
