"""The view of change capture: looks at nodes and reports as HBase has them, through the route."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.answers import TOO_LATE, ask_all
from rtolap.airflow.page.capture import routes as capture_routes
from rtolap.airflow.page.capture.looks import TEXT_MAX, cut, listener_text
from rtolap.airflow.page.capture.messages import Capture
from rtolap.airflow.page.capture.routes import EarlierLooks
from rtolap.airflow.page.rights import reader
from rtolap.airflow.plugin import app
from rtolap.base.errors import Unavailable
from rtolap.model.subscription import HBaseSource, Subscription, SubscriptionListener
from rtolap.protocols.agent.messages import ProcessStatus, WaitingTask
from rtolap.sep.delivery.state import DeliveryState, FailingEventState, RowApartState
from rtolap.sep.hbase.peers import ClusterKey
from rtolap.sep.status.model import ReplicationStatus
from rtolap.sep.status.sources import ReplicationSources, WalSizes
from rtolap.sep.subscriptions.records import SubscriptionRecord
from rtolap.sep.subscriptions.steps import wanted_peer

from tests.support.sep.replication_looks import SERVERS, LookedAtCluster, log_name
from tests.support.twins.metadata import MemoryStore

MARKUP = "<b>row</b>"
TASK = WaitingTask("rtolap_subscriptions", "a run", "consumer", 3)
DEFINITION = """
kind: subscription
name: {name}
source: {{zookeeper: "{zookeeper}", parent: /hbase}}
tables: {{orders: [cf]}}
listener: {{kind: stored_table, database: shop, table: orders}}
"""


def subscription(name: str, consumers: int = 1) -> Subscription:
    return Subscription(
        name=name,
        source=HBaseSource("zk:2181", "/hbase"),
        tables={"orders": ("cf",)},
        listener=SubscriptionListener(kind="kafka", topic="changes"),
        consumers=consumers,
    )


def delivery(**fields: Any) -> DeliveryState:
    counts = dict.fromkeys(("delivered", "duplicates", "late", "dead_letters", "failed_calls"), 0)
    values: dict[str, Any] = {**counts, "remembered_edits": 0, "failing_events": 0, **fields}
    return DeliveryState(**values)


def make(cluster: LookedAtCluster, declared: Subscription) -> SubscriptionRecord:
    """Put the nodes and the peer of a subscription, as creating it leaves them."""
    identity = str(uuid.uuid4())
    record = SubscriptionRecord(subscription=declared, cluster_id=identity, start_ms=5, phase="created")
    cluster.node("/hbase/hbaseid", str(uuid.UUID(int=1)).encode())
    cluster.node(record.paths.definition, record.encode())
    cluster.node(record.paths.hbaseid, identity.encode())
    cluster.node(f"{record.paths.rs}/h9,7001,1")
    cluster.master.known[declared.name] = msgspec.structs.replace(wanted_peer(declared), enabled=True)
    return record


@pytest.fixture
def cluster() -> LookedAtCluster:
    cluster = LookedAtCluster()
    record = make(cluster, subscription("orders"))
    failing = FailingEventState("region", 7, MARKUP, 4, f"{MARKUP} is refused")
    state = delivery(
        delivered=12,
        dead_letters=2,
        failing_events=1,
        failing=(failing,),
        rows_apart=1,
        apart=(RowApartState("orders", "r" * 1000, 50, "it failed"),),
        waiting_events=3,
    )
    cluster.node(record.paths.delivery, msgspec.json.encode(state))
    cluster.add_peer("others", sinks=1)
    cluster.queue(SERVERS[0], "orders", {1000: 5})
    cluster.queue(SERVERS[1], "others", {2000: None})
    cluster.report(SERVERS[0], "orders", replicationLag=90_000, timeStampOfNextToReplicate=1)
    cluster.report(SERVERS[1], "others", replicationLag=0)
    return cluster


class Agent:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def processes(self) -> tuple[ProcessStatus, ...]:
        return (
            ProcessStatus(key="sep.orders", generation=2, state="RUNNING", labels=TASK.label()),
            ProcessStatus(key="sep.returns", generation=1, state="RUNNING"),
        )


@pytest.fixture
def opened(cluster: LookedAtCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """How ZooKeeper of HBase is reached: `zk` answers, `away` does not; what else there is a test adds."""

    def of_cluster(root_dir: str | None = None) -> ReplicationSources:
        session = MemoryStore(cluster.store.ensemble)  # each look has its own, and closes it
        return ReplicationSources(
            ClusterKey("zk:2181", "/hbase"),
            session,
            cluster.master,
            wal_sizes=WalSizes(root_dir) if root_dir else None,
            open_store=lambda _: session,
        )

    kinds: dict[str, Callable[..., ReplicationSources]] = {"zk": of_cluster}

    def away(**_: object) -> ReplicationSources:
        raise Unavailable("ZooKeeper does not answer")

    def open_sources(
        key: ClusterKey, *, root_dir: str | None = None, master_timeout_s: float
    ) -> ReplicationSources:
        assert master_timeout_s > 0
        asked = {} if root_dir is None else {"root_dir": root_dir}
        return kinds.get(key.zookeeper.partition(":")[0], away)(**asked)

    monkeypatch.setattr(ReplicationSources, "open", staticmethod(open_sources))
    return kinds.__setitem__  # type: ignore[return-value]


@pytest.fixture
def signed_in(tmp_path: Path, opened: object, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Capture]:
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    monkeypatch.setattr(RtolapHook, "agent", lambda _hook: Agent())
    monkeypatch.setenv("RTOLAP_HBASE", "zk:2181/hbase")
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path))
    monkeypatch.setattr(capture_routes, "_earlier", EarlierLooks())
    (tmp_path / "sep").mkdir()

    def asked() -> Capture:
        answer = TestClient(app).get("/page/capture")
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=Capture)

    return asked


def define(folder: Path, name: str, zookeeper: str) -> None:
    (folder / "sep" / f"{name}.yaml").write_text(DEFINITION.format(name=name, zookeeper=zookeeper))


def test_queues_peers_and_subscriptions_are_shown_with_their_consumers(
    signed_in: Callable[[], Capture],
) -> None:
    seen = signed_in()
    assert [(each.address, each.servers, each.error, each.missing) for each in seen.clusters] == [
        ("zk:2181/hbase", 3, "", ())
    ]
    assert [(each.peer, each.lag_ms, each.log[-5:], each.position_bytes) for each in seen.queues] == [
        ("orders", 90_000, ".1000", 5),
        ("others", 0, ".2000", None),
    ]
    assert [(each.peer, each.sinks, each.waits) for each in seen.peers] == [
        ("orders", 1, {}),
        ("others", 1, {"nothing to replicate": 1}),
    ]
    (found,) = seen.subscriptions
    assert (found.state, found.follows, found.listener) == ("running", "orders", "topic changes of default")
    assert (found.delivered, found.dead_letters, found.failing_events, found.rows_apart) == (12, 2, 1, 1)
    assert [(each.owner, each.state, each.lag) for each in found.consumers] == [("h9:7001", "running", 3)]
    assert found.task is not None
    assert (found.task.dag_id, found.task.map_index, found.task.key) == (TASK.dag_id, 3, "sep.orders")


@pytest.mark.parametrize("there", [True, False])
def test_sizes_of_logs_are_read_where_the_connection_says_they_are(
    signed_in: Callable[[], Capture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    assert [each.log_bytes for each in signed_in().queues] == [None, None]
    folder = tmp_path / "hbase" / "WALs" / str(SERVERS[0])
    if there:
        folder.mkdir(parents=True)
        (folder / log_name(SERVERS[0], 1000)).write_bytes(b"x" * 300)
    declared = {
        "conn_type": "hbase",
        "host": "zk",
        "port": 2181,
        "extra": {"root_dir": f"file://{tmp_path}/hbase"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_HBASE_DEFAULT", json.dumps(declared))
    seen = signed_in()
    queue = seen.queues[0]
    assert (queue.log_bytes, queue.left_bytes, queue.is_lower_bound) == (
        (300, 295, False) if there else (None, None, False)
    )
    assert any("sizes of logs" in line for each in seen.clusters for line in each.missing) is not there


def test_events_that_fail_are_named_with_their_row_and_no_more_of_it_than_can_be_read(
    signed_in: Callable[[], Capture],
) -> None:
    failing, apart = signed_in().poison
    assert (failing.row, failing.tries, failing.apart, failing.reason) == (
        MARKUP,
        4,
        False,
        f"{MARKUP} is refused",
    )
    assert (apart.apart, apart.since_ms, apart.row[:11]) == (True, 50, "orders: rrr")
    assert len(apart.row) <= TEXT_MAX + 2


def test_shares_are_summed_and_each_consumer_has_a_row(
    cluster: LookedAtCluster, signed_in: Callable[[], Capture]
) -> None:
    record = make(cluster, subscription("shared", consumers=3))
    for share, consumer in enumerate(("c1", "c1")):
        cluster.node(record.paths.holder(share), consumer.encode())
        state = delivery(delivered=10 + share, consumer=consumer, waiting_events=1)
        cluster.node(record.paths.delivery_of(share, 3), msgspec.json.encode(state))
    cluster.node(record.paths.consumer("c1"))
    found = next(each for each in signed_in().subscriptions if each.name == "shared")
    assert (found.state, found.delivered) == ("running", 21)
    assert [(each.process, each.shares, each.state) for each in found.consumers] == [
        ("c1", (0, 1), "delivers"),
        ("", (2,), "nobody holds it"),
    ]


def test_a_cluster_that_is_away_is_named_and_the_others_are_shown_all_the_same(
    signed_in: Callable[[], Capture], tmp_path: Path
) -> None:
    define(tmp_path, "returns", "away:2181")
    define(tmp_path, "unmade", "zk:2181")
    seen = signed_in()
    assert [(each.address, each.error) for each in seen.clusters] == [
        ("away:2181/hbase", "ZooKeeper does not answer"),
        ("zk:2181/hbase", ""),
    ]
    assert [(each.name, each.state, each.task is None) for each in seen.subscriptions] == [
        ("orders", "running", False),
        ("returns", "unknown", True),
        ("unmade", "not made", True),
    ]
    assert len(seen.queues) == 2


def test_a_connection_that_names_no_cluster_hides_none_that_a_definition_names(
    signed_in: Callable[[], Capture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HBASE_DEFAULT", '{"conn_type": "hbase"}')
    define(tmp_path, "orders", "zk:2181")
    define(tmp_path, "anywhere", "")
    seen = signed_in()
    assert [(each.address, "names no ZooKeeper" in each.error) for each in seen.clusters] == [
        ("of connection hbase_default", True),
        ("zk:2181/hbase", False),
    ]
    assert [(each.name, each.state) for each in seen.subscriptions] == [
        ("anywhere", "unknown"),
        ("orders", "running"),
    ]


def test_a_cluster_that_hangs_keeps_nobody_waiting(
    signed_in: Callable[[], Capture],
    opened: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = threading.Event()

    def hangs() -> ReplicationSources:
        ends.wait(60)
        raise Unavailable("it hung")

    opened("hangs", hangs)
    define(tmp_path, "returns", "hangs:2181")
    monkeypatch.setattr(capture_routes, "ANSWER_S_MAX", 1.0)
    try:
        seen = signed_in()
    finally:
        ends.set()
    assert [(each.address, each.error) for each in seen.clusters] == [
        ("hangs:2181/hbase", TOO_LATE),
        ("zk:2181/hbase", ""),
    ]


def test_queues_stand_while_the_master_is_silent_and_subscriptions_are_not_called_unmade(
    cluster: LookedAtCluster, signed_in: Callable[[], Capture], tmp_path: Path
) -> None:
    define(tmp_path, "unmade", "zk:2181")
    cluster.master.silent = True
    seen = signed_in()
    assert [(each.peer, each.lag_ms) for each in seen.queues] == [("orders", None), ("others", None)]
    (found,) = seen.subscriptions
    assert (found.name, found.state) == ("unmade", "unknown")
    (told,) = seen.clusters
    assert [each.partition(":")[0] for each in told.missing] == ["peers", "GetClusterStatus", "subscriptions"]


def test_the_rest_is_shown_without_the_agent_and_without_definitions_that_can_be_read(
    signed_in: Callable[[], Capture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_hook: RtolapHook) -> Agent:
        raise Unavailable("no agent answers")

    monkeypatch.setattr(RtolapHook, "agent", nobody)
    (tmp_path / "sep" / "broken.yaml").write_text("kind: subscription\nname: 1\n")
    seen = signed_in()
    assert "no agent answers" in seen.agent_error
    assert "broken.yaml" in seen.definitions_error
    assert [each.name for each in seen.subscriptions] == ["orders"]


def test_a_second_look_says_whether_the_lag_grows(
    cluster: LookedAtCluster, signed_in: Callable[[], Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {each.lag_trend for each in signed_in().peers} == {None}
    monkeypatch.setattr(capture_routes, "_BEFORE_MS_MIN", 0)
    cluster.master.status.Clear()
    cluster.report(SERVERS[0], "orders", replicationLag=190_000, timeStampOfNextToReplicate=1)
    grown = next(each for each in signed_in().peers if each.peer == "orders")
    assert grown.lag_trend is not None
    assert grown.lag_trend > 0


@given(st.lists(st.integers(0, 400_000), max_size=12))
def test_a_look_is_compared_with_one_that_is_neither_just_now_nor_of_long_ago(gaps_ms: list[int]) -> None:
    looks, now_ms = EarlierLooks(), 1_000_000
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        before = looks.before("a", now_ms)
        assert looks.before("another", now_ms) is None
        if before is not None:
            assert 2_000 <= now_ms - before.at_ms <= 300_000
        elif gap_ms:
            assert gap_ms < 2_000 or gap_ms > 300_000 or gap_ms == now_ms - 1_000_000
        looks.keep("a", ReplicationStatus(at_ms=now_ms, cluster="a", servers=0))


@given(st.text(max_size=2 * TEXT_MAX))
def test_a_text_is_cut_and_never_changed(text: str) -> None:
    assert cut(text) == text or (cut(text)[:TEXT_MAX] == text[:TEXT_MAX] and len(text) > TEXT_MAX)


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        (SubscriptionListener(kind="kafka", topic="t", cluster="c"), "topic t of c"),
        (SubscriptionListener(kind="stored_table", database="d", table="t"), "stored table d.t"),
        (SubscriptionListener(kind="python", entry_point="mail"), "entry point mail"),
    ],
)
def test_a_listener_is_named_by_where_events_go(listener: SubscriptionListener, text: str) -> None:
    assert listener_text(listener) == text


def test_an_error_of_ours_is_an_answer_and_any_other_is_raised() -> None:
    def broken() -> int:
        raise Unavailable("away")

    def wrong() -> int:
        raise ZeroDivisionError

    found = ask_all({"one": lambda: 1, "broken": broken}, 30)
    assert (found["one"].answer, found["broken"].error) == (1, "away")
    with pytest.raises(ZeroDivisionError):
        ask_all({"wrong": wrong}, 30)


@pytest.mark.parametrize("status", [401, 403])
def test_nobody_sees_change_capture_who_may_not_read(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(status)

    monkeypatch.setitem(app.dependency_overrides, reader, refuse)
    assert TestClient(app).get("/page/capture").status_code == status
