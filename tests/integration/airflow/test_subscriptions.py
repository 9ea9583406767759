"""A subscription to a real HBase under the real scheduler: made, run as a task, waited for, dropped."""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Page, expect
from rtolap.sep.subscriptions.records import names
from rtolap.stack.artifacts import find_java, hbase_jars
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.hbase import hbase_spec

from tests.integration.airflow.browsing import MARKUP, assert_is_text, picture, serious_in
from tests.support.airflow_stack import AirflowStack
from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.kafka_topics import create_topic
from tests.support.sep.numbered_rows import Topic, Writer

pytestmark = pytest.mark.integration

DEFINITIONS, CONSUMERS = "rtolap_subscription_definitions", "rtolap_subscriptions"
WAIT, CAUGHT_UP = "it_replication", "it_caught_up"
ASSET = "rtolap_subscription_caught_up"


@pytest.fixture(scope="module")
def hbase_client(airflow: AirflowStack, module_folder: Path) -> Iterator[HBaseClient]:
    """Of the HBase that the deployment's settings name."""
    ports = airflow.around.ports
    zookeeper_port = ports["hbase-zookeeper"]
    spec = hbase_spec(
        find_java(),
        hbase_jars(),
        module_folder / "hbase-of-airflow",
        ports["hbase-master"],
        zookeeper_port,
        info_port=free_port(),
    )
    server = ManagedProcess(spec)
    try:
        server.start()
        with HBaseClient(server.address) as client:
            yield client
    finally:
        server.kill()


@pytest.fixture(scope="module")
def logs_of_hbase(airflow: AirflowStack, hbase_client: HBaseClient, module_folder: Path) -> Iterator[None]:
    """The connection says where HBase keeps its logs."""
    port = airflow.around.ports["hbase-zookeeper"]
    extra = json.dumps({"root_dir": (module_folder / "hbase-of-airflow" / "data" / "hbase").as_uri()})
    made = {"connection_id": "hbase_default", "conn_type": "hbase", "host": "127.0.0.1", "port": port}
    airflow.api.post("/api/v2/connections", json={**made, "extra": extra}).raise_for_status()
    yield
    airflow.api.delete("/api/v2/connections/hbase_default").raise_for_status()


@pytest.fixture
def subscription(
    airflow: AirflowStack, airflow_home: Path, hbase_client: HBaseClient, logs_of_hbase: None, kafka: str
) -> Iterator[str]:
    """Declared, and not made yet; its topic and table are there."""
    name = f"orders_{uuid.uuid4().hex[:6]}"
    topic = NewTopic(name, num_partitions=1, replication_factor=1)
    create_topic(kafka, topic)
    hbase_client.create_table(name)
    definition = {
        "kind": "subscription",
        "name": name,
        "source": {"zookeeper": f"127.0.0.1:{airflow.around.ports['hbase-zookeeper']}"},
        "tables": {name: ["cf"]},
        "row": {"name": "row"},
        "columns": {"n": {"cell": "cf:n", "type": "long"}},
        "listener": {"kind": "kafka", "topic": name},
    }
    include = airflow_home / "include"
    files = (include / "sep" / f"{name}.yaml", include / "subscriptions.yaml")
    files[0].parent.mkdir(exist_ok=True)
    files[0].write_text(json.dumps(definition))
    files[1].write_text(json.dumps([{"name": name, "host": "localhost"}]))
    yield name
    for file in files:
        file.unlink()
    airflow.pause(CAUGHT_UP)
    airflow.end_services(CONSUMERS, f"sep.{name}")


def test_a_subscription_is_made_run_waited_for_announced_and_dropped(
    airflow: AirflowStack,
    hbase_client: HBaseClient,
    subscription: str,
    kafka: str,
    sign_in: Callable[..., Page],
) -> None:
    check_declared(sign_in, subscription)
    airflow.run_dag(DEFINITIONS)
    assert subscription in names(hbase_client.store)
    writer = Writer(hbase_client, subscription, Random(5))
    writer.write(20)
    airflow.unpause(CAUGHT_UP)
    airflow.unpause(CONSUMERS)
    process = airflow.until_running(f"sep.{subscription}")

    run = airflow.trigger(WAIT, peer=subscription)
    task = airflow.until_task(WAIT, run, "success", "failed", task_id="written")
    assert task["state"] == "success", airflow.log(task)
    assert airflow.result(task)["peer"] == subscription
    topic = Topic(kafka, subscription)
    airflow.until("all that was written", lambda: topic.poll() == writer.total or None)

    def announced() -> list[dict[str, Any]] | None:
        payloads = [event["extra"]["payload"] for event in airflow.asset_events(ASSET)]
        return [payload for payload in payloads if payload["subscription"] == subscription] or None

    airflow.until("event of the subscription that has caught up", announced)

    check_page(airflow, sign_in, subscription)

    # a cleared task has another process, which goes on where the first was
    (deferred,) = airflow.tasks(CONSUMERS, task_id="consumer")
    airflow.clear(CONSUMERS, deferred["dag_run_id"], ("consumer", deferred["map_index"]))
    hbase_client.write(subscription, mutations.put(b"zz", {"cf:n": struct.pack(">q", 1)}))
    airflow.until_running(f"sep.{subscription}", process.generation + 1)
    airflow.until("one more record", lambda: topic.poll() == writer.total + 1 or None)
    topic.counts_by_row()
    topic.close()

    def deferred_again() -> bool | None:
        (task,) = airflow.tasks(CONSUMERS, task_id="consumer")
        return True if task["state"] == "deferred" else None

    airflow.until("deferred consumer", deferred_again)
    check_failing_event(sign_in, hbase_client, subscription)
    airflow.until_renewed(f"sep.{subscription}")  # before its trigger runs, nobody is told of a mark
    airflow.pause(CONSUMERS)
    path = f"/api/v2/dags/{CONSUMERS}/dagRuns/{deferred['dag_run_id']}/taskInstances/consumer"
    answer = airflow.api.patch(f"{path}/{deferred['map_index']}", json={"new_state": "failed"})
    answer.raise_for_status()
    airflow.until_process(f"sep.{subscription}", "STOPPED")
    airflow.run_dag(DEFINITIONS, drop=[subscription])
    assert subscription not in names(hbase_client.store)
    assert subscription not in hbase_client.master.peers()


def check_declared(sign_in: Callable[..., Page], name: str) -> None:
    page = sign_in("viewer", "?view=capture")
    table = page.get_by_role("table", name="Subscriptions")
    expect(table.get_by_role("row", name=re.compile(f"^{name} not made"))).to_be_visible()


def check_page(airflow: AirflowStack, sign_in: Callable[..., Page], name: str) -> None:
    """The page shows the subscription that runs, and leads to its task in Airflow and back."""
    page = sign_in("admin", "?view=capture", "dark")
    row = page.get_by_role("table", name="Subscriptions").get_by_role(
        "row", name=re.compile(f"^{name} running")
    )
    expect(row).to_contain_text(f"topic {name} of default")
    consumers = page.get_by_role("table", name="Consumers")
    expect(consumers.get_by_role("row", name=re.compile(f"^{name} .* running"))).to_be_visible()
    queues = page.get_by_role("table", name="Queues of region servers")
    queue = queues.get_by_role("row", name=re.compile(f"^{name} "))
    expect(queue.get_by_role("cell").nth(4)).not_to_be_empty()  # its log
    for cell in (6, 7):  # its size, and what is left to ship of all logs
        expect(queue.get_by_role("cell").nth(cell)).to_have_text(re.compile(r"^[0-9.]+ [KM]?i?B$"))
    expect(page.get_by_text("No event is known to fail.")).to_be_visible()
    assert serious_in(page) == []
    picture(page, "capture", "Change capture: subscriptions, peers and queues")
    row.get_by_role("link", name="Task").click()
    expect(page).to_have_url(re.compile(f"/dags/{CONSUMERS}/runs/.*/tasks/consumer/mapped/0"))
    (task,) = airflow.tasks(CONSUMERS, task_id="consumer")
    url = f"/api/v2/dags/{CONSUMERS}/dagRuns/{task['dag_run_id']}/taskInstances/consumer/links"
    answer = airflow.api.get(url, params={"map_index": task["map_index"]}).raise_for_status()
    page.goto(answer.json()["extra_links"]["In rtolap"])
    expect(page.get_by_text(f"Only {name} is shown.")).to_be_visible()


def check_failing_event(sign_in: Callable[..., Page], hbase_client: HBaseClient, name: str) -> None:
    """A value that is not of its column's type fails, and its row's key is shown as the text that it is."""
    hbase_client.write(name, mutations.put(MARKUP.encode(), {"cf:n": b"abc"}))
    page = sign_in("viewer", f"?view=capture&name={name}")
    failing = page.get_by_role("table", name="Events that fail")
    expect(failing.get_by_role("row", name=re.compile(f"^{name} event"))).to_contain_text(MARKUP)
    assert_is_text(page)
    assert serious_in(page) == []
    picture(page, "capture-failing")
