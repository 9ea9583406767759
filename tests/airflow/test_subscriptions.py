"""Subscriptions to HBase as tasks: which are declared, who makes and drops them, and what waits for them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSensorTimeout,
    TaskDeferred,
)
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.airflow.declared import SUBSCRIPTIONS, defined_subscriptions
from rtolap.airflow.hooks.hbase import HBaseHook, HBaseReplication
from rtolap.airflow.operators import subscriptions as operators
from rtolap.airflow.operators.services import SubscriptionOperator
from rtolap.airflow.operators.subscriptions import CreateSubscriptionOperator, DropSubscriptionOperator
from rtolap.airflow.provider import get_provider_info
from rtolap.airflow.sensors import replication as sensors
from rtolap.airflow.sensors.replication import ReplicationWaitSensor
from rtolap.airflow.triggers import replication
from rtolap.airflow.triggers.replication import CaughtUpTrigger, ReplicationWaitTrigger
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.model.subscription import Subscription
from rtolap.sep.hbase.peers import ClusterKey
from rtolap.sep.status.wait import Connection

from tests.support.sep.replication_looks import REPORTED_MS, SERVERS, LookedAtCluster, log_name

TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})  # how Airflow resumes a task whose trigger is overdue
DEFINITION = """
kind: subscription
name: {name}
source: {{zookeeper: "zk:2181", parent: /hbase}}
tables: {{orders: [cf]}}
listener: {{kind: kafka, topic: changes}}
"""


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path))
    (tmp_path / "sep").mkdir()
    for name in ("orders", "customers"):
        (tmp_path / "sep" / f"{name}.yaml").write_text(DEFINITION.format(name=name))
    return tmp_path


# -- which are declared ----------------------------------------------------------------------------------


def test_subscriptions_come_from_the_variable_the_file_or_the_definitions(include: Path) -> None:
    assert {entry["subscription"] for entry in SUBSCRIPTIONS.declared(None, include)} == {
        "orders",
        "customers",
    }
    (include / "subscriptions.yaml").write_text("subscriptions:\n- {name: a, ports: [7001, 7002]}\n")
    assert SUBSCRIPTIONS.declared(None, include) == [{"subscription": "a", "host": "", "ports": [7001, 7002]}]
    assert SUBSCRIPTIONS.declared([{"name": "b", "host": "h"}], include) == [
        {"subscription": "b", "host": "h", "ports": []}
    ]


def test_without_any_none_are_declared(tmp_path: Path) -> None:
    assert SUBSCRIPTIONS.declared(None, tmp_path) == []


@pytest.mark.parametrize(
    "wrong", [["a"], [{"ports": [1]}], [{"name": "a", "ports": 1}], [{"name": "a", "ports": [0]}]]
)
def test_wrong_entries_are_refused(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="Variable rtolap_subscriptions"):
        SUBSCRIPTIONS.declared(wrong, tmp_path)


def test_a_consumer_is_a_command_of_the_allow_list(tmp_path: Path) -> None:
    operator = SubscriptionOperator(task_id="t", subscription="orders", host="h1", ports=[7001, 7002])
    assert operator.process_key == "sep.orders"
    assert operator.argv == [
        "rtolap",
        "sep",
        "serve",
        "orders",
        "--host",
        "h1",
        "--port",
        "7001",
        "--port",
        "7002",
    ]
    commands = Commands(Host(jobs_dir=tmp_path, data_dir=tmp_path, object_store="file:///store"))
    assert commands.resolve(operator.argv)[-7:] == tuple(operator.argv[-7:])
    with pytest.raises(DefinitionError, match="option of"):
        commands.resolve([*operator.argv, "--cluster", "elsewhere:2181"])


# -- the connection --------------------------------------------------------------------------------------


def _connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HBASE_DEFAULT", json.dumps({"conn_type": "hbase", **fields}))


def test_a_connection_names_the_servers_their_port_and_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTOLAP_HBASE", "h:2183/hbase-secure")
    assert HBaseHook().cluster == ClusterKey("h:2183", "/hbase-secure")
    _connect(monkeypatch, host="zk1,zk2", port=2182, extra={"parent": "/hb"})
    assert HBaseHook().cluster == ClusterKey("zk1:2182,zk2:2182", "/hb")
    _connect(monkeypatch, host="zk1")
    assert HBaseHook().cluster == ClusterKey("zk1:2181", "/hbase")
    _connect(monkeypatch)
    with pytest.raises(DefinitionError, match="names no ZooKeeper"):
        _ = HBaseHook().cluster
    with pytest.raises(AirflowNotFoundException):
        _ = HBaseHook("hbase_of_a_test").cluster


def test_the_form_tests_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(hook: HBaseHook) -> Any:
        raise Unavailable("ZooKeeper does not answer")

    monkeypatch.setattr(HBaseHook, "sources", silent)
    assert HBaseHook().test_connection() == (False, "ZooKeeper does not answer")
    (form,) = (kind for kind in get_provider_info()["connection-types"] if kind["connection-type"] == "hbase")
    assert form["hook-class-name"] == f"{HBaseHook.__module__}.{HBaseHook.__name__}"


# -- created and dropped ---------------------------------------------------------------------------------


class FakeReplication:
    """Answers with what a test sets: `steps` of the logs that are left, `states` of what has caught up."""

    def __init__(self) -> None:
        self.steps: list[list[str] | Exception] = []
        self.states: list[dict[str, bool] | Exception] = []
        self.noted: list[tuple[str, int | None]] = []
        self.calls: list[tuple[str, str]] = []

    async def load(self) -> None: ...

    def __enter__(self) -> FakeReplication:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def close(self) -> None:
        pass

    def due(self, peer: str, before_ms: int | None) -> dict[str, Any]:
        self.noted.append((peer, before_ms))
        return {"peer": peer, "logs": ["a", "b"], "unrolled": ["s"]}

    def advance(self, due: dict[str, Any]) -> dict[str, Any]:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return {**due, "logs": step, "unrolled": []}

    def caught_up(self) -> dict[str, bool]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def create(self, subscription: Subscription) -> list[str]:
        self.calls.append(("create", subscription.name))
        return ["alter it"]

    def drop(self, name: str, subscription: Subscription | None) -> None:
        if name == "gone":
            raise NotFound("no subscription gone")
        self.calls.append(("drop", name if subscription is None else f"{name} of its file"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeReplication:
    fake = FakeReplication()
    for module in (operators, sensors, replication):
        monkeypatch.setattr(module, "open_replication", lambda conn_id: fake)
    return fake


def test_subscriptions_are_created_of_their_files_and_dropped_with_or_without_one(
    include: Path, fake: FakeReplication
) -> None:
    assert CreateSubscriptionOperator(task_id="t", subscription="orders").execute({}) == ["alter it"]
    for name in ("orders", "former", "gone"):
        DropSubscriptionOperator(task_id="t", subscription=name).execute({})
    assert fake.calls == [("create", "orders"), ("drop", "orders of its file"), ("drop", "former")]
    with pytest.raises(AirflowFailException, match="no file in"):
        CreateSubscriptionOperator(task_id="t", subscription="former").execute({})
    assert set(defined_subscriptions(include)) == {"orders", "customers"}


# -- waiting ---------------------------------------------------------------------------------------------


async def _first(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


def test_what_was_delivered_already_is_not_waited_for(fake: FakeReplication) -> None:
    fake.steps = [[]]
    sensor = ReplicationWaitSensor(task_id="t", peer="orders", before="2024-01-01T00:00:00Z")
    assert sensor.execute({}) == {"peer": "orders", "before": "2024-01-01T00:00:00+00:00"}
    assert fake.noted == [("orders", 1_704_067_200_000)]


def test_the_wait_goes_on_in_the_triggerer_with_what_was_noted(fake: FakeReplication) -> None:
    fake.steps = [["a", "b"], Unavailable("restarting"), ["b"], []]
    sensor = ReplicationWaitSensor(task_id="t", peer="orders", poke_interval=0.01)
    with pytest.raises(TaskDeferred) as deferral:
        sensor.execute({})
    trigger = deferral.value.trigger
    assert asyncio.run(asyncio.wait_for(_first(trigger), 20))["said"] == {"peer": "orders"}
    assert fake.noted == [("orders", None)]  # once, at the task's start, of all queues
    waited_for = deferral.value.kwargs["waited_for"]
    resumed = ReplicationWaitSensor(task_id="t", peer="orders")
    event = {"waited_for": waited_for, "said": {"peer": "orders"}}
    assert resumed.heard({}, event, waited_for)["peer"] == "orders"


def test_a_wait_in_vain_looks_once_more_for_the_same_logs_and_names_them(fake: FakeReplication) -> None:
    fake.steps = [["a", "b"]]
    sensor = ReplicationWaitSensor(task_id="t", peer="orders", timeout=7)
    with pytest.raises(TaskDeferred) as deferral:
        sensor.execute({})
    method, kwargs = TIMED_OUT
    resumed = ReplicationWaitSensor(task_id="t", peer="orders", timeout=7)
    with pytest.raises(
        AirflowSensorTimeout, match="7 s without success: 2 logs are not delivered to orders: a, b"
    ):
        resumed.resume_execution(method, {**kwargs, **deferral.value.kwargs}, {})
    assert fake.noted == [("orders", None)]


def test_an_instant_to_come_is_waited_for_first(fake: FakeReplication) -> None:
    fake.steps = [[]]
    sensor = ReplicationWaitSensor(task_id="t", peer="orders", before="2999-01-01T00:00:00Z")
    with pytest.raises(TaskDeferred):
        sensor.execute({})
    assert fake.noted == []


def test_triggers_keep_every_argument() -> None:
    arguments: dict[str, Any] = {
        "peer": "orders",
        "before_ms": 5,
        "due": {"peer": "orders", "logs": ["a"], "unrolled": []},
        "poll_s": 0.5,
        "hbase_conn_id": "other",
    }
    path, kept = ReplicationWaitTrigger(**arguments).serialize()
    assert (path, kept) == ("rtolap.airflow.triggers.replication.ReplicationWaitTrigger", arguments)
    path, kept = CaughtUpTrigger(poll_s=0.5, hbase_conn_id="other").serialize()
    assert path == "rtolap.airflow.triggers.replication.CaughtUpTrigger"
    assert kept == {"poll_s": 0.5, "hbase_conn_id": "other"}


def test_a_subscription_is_announced_whenever_it_has_caught_up(fake: FakeReplication) -> None:
    fake.states = [
        {"orders": True, "customers": False},
        Unavailable("restarting"),
        {"orders": True, "customers": True},
        {"orders": False, "customers": True},
        {"orders": True},
    ]

    async def announced() -> list[str]:
        names: list[str] = []
        async for event in CaughtUpTrigger(poll_s=0).run():
            names.append(event.payload["subscription"])
            if len(names) == 3:
                break
        return names

    assert asyncio.run(asyncio.wait_for(announced(), 20)) == ["orders", "customers", "orders"]


# -- over a cluster's nodes ------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LookedAtCluster:
    cluster = LookedAtCluster()
    for name in ("orders", "others_peer"):
        cluster.add_peer(name, sinks=1)
        cluster.queue(SERVERS[0], name, {1000: 5})
    cluster.node("/rtolap/sep/orders/definition")
    cluster.forget("/rtolap/sep/others_peer/rs/sink,0,1")
    cluster.forget("/rtolap/sep/others_peer/rs")
    cluster.forget("/rtolap/sep/others_peer")
    monkeypatch.setattr(HBaseHook, "sources", lambda hook: cluster.sources())
    monkeypatch.setattr(Connection, "call", lambda *unused, **options: None)
    return cluster


def test_subscriptions_of_ours_have_caught_up_when_their_servers_say_so(cluster: LookedAtCluster) -> None:
    replication = HBaseReplication()
    cluster.report(SERVERS[0], "orders", replicationLag=10, timeStampOfNextToReplicate=REPORTED_MS)
    assert replication.caught_up() == {"orders": False}
    cluster.master.status.Clear()
    cluster.report(SERVERS[0], "orders", replicationLag=0)
    assert replication.caught_up() == {"orders": True}


def test_due_logs_are_noted_and_dropped_as_they_leave_the_queues(cluster: LookedAtCluster) -> None:
    replication = HBaseReplication()
    begun_ms = time.time_ns() // 1_000_000 + 3_600_000
    cluster.queue(SERVERS[0], "orders", {begun_ms: None})
    due = replication.due("orders", None)
    assert due == {
        "peer": "orders",
        "logs": [log_name(SERVERS[0], begun_ms)],
        "unrolled": [str(SERVERS[0])],
    }
    assert replication.advance(due) == {**due, "unrolled": []}
    cluster.queue(SERVERS[0], "orders", {begun_ms + 1: None})
    assert replication.advance(due)["logs"] == []
    with pytest.raises(NotFound, match="no peer nobody"):
        replication.due("nobody", None)
