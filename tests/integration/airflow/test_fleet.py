"""Brokers are cared for by the shipped DAGs: a person approves in Airflow's form, the mover moves.

Three real brokers, each with two disks of its own, under the Airflow of these tests; 1 and 2 share a rack. A
topic lies at the brokers 1 and 2; another may stand there alone, by the registry. The tests go on where the
one before has ended: what is rejected or cancelled moves nothing, what is approved balances; replicas that
share a rack are moved apart; broker 2 is drained, taken back and retires; and broker 3 is repaired.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect
from rtolap.airflow.outlets.plans import finished_plans
from rtolap.airflow.sensors.fleet import (
    FleetSensor,
    NoMovesRunningSensor,
    NoUnderReplicatedPartitionSensor,
)
from rtolap.base.clock import SystemClock
from rtolap.fleet.isolation.audit import audit
from rtolap.fleet.isolation.findings import FindingKind
from rtolap.fleet.isolation.registry import HostRegistry, read_registry
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import BrokerOperations
from rtolap.fleet.lifecycle.states import BrokerEvent, BrokerLife
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.operations.cluster import OpenedFleet
from rtolap.fleet.operations.drains import PlannedDrains
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import kafka_json, plan_from, plan_json
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.kafka.administration.values import Partition
from rtolap.object_store.store import open_store
from rtolap.stack.artifacts import JavaArtifacts

from tests.integration.airflow.browsing import MARKUP, picture, serious_in
from tests.integration.fleet.conftest import world_of
from tests.support.fleet.administration_contract import World
from tests.support.fleet.agents import Agents
from tests.support.fleet.brokers import Brokers, require_small_disks
from tests.support.fleet.counted_records import recounted
from tests.support.fleet.kafka_tools import verify_plan
from tests.support.fleet.moved_fleet import throttles_of
from tests.support.fleet.mover_process import MoverProcess
from tests.support.fleet.registries import registered
from tests.support.hostile.cluster_store import store_of
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.integration

BALANCE, RACK_REPAIR, DRAIN = "rtolap_fleet_balance", "rtolap_fleet_rack_repair", "rtolap_fleet_drain"
REPAIR, RETIRE, CANCEL = "rtolap_fleet_repair", "rtolap_fleet_retire", "rtolap_fleet_cancel"
REPORT = "it_plans_report"
CONNECTION = "/api/v2/connections"
PARTITIONS = 8
SIZE_BYTES = 3_000_000
DISK_BYTES = 100_000_000
SLOW_BYTES_PER_S = 1_500_000
CRAWLING_BYTES_PER_S = 10_000
QUESTION_S = 600.0  # each look before it is a worker, and a wait in the triggerer if need be
POLL_S = 4
WRITERS, STOPPED_S, RUNNING_S = 20, 0.8, 0.4
RACK_KINDS = (FindingKind.SHARED_RACK, FindingKind.RACK_LOSS)


@dataclass
class CaredFleet:
    """`topic` is moved; `pinned` may stand at some brokers alone."""

    airflow: Any
    brokers: Brokers
    world: World
    opened: OpenedFleet
    kept: FleetStore
    topic: str
    pinned: str

    def register(self, *pinned: int) -> Path:
        """Declare where the pinned topic may stand."""
        rule = f"{{match: [{self.pinned}], brokers: {[*pinned]}}}"
        cluster = {"cluster": "shop", "cluster_id": self.snapshot().cluster_id, "roles": "combined"}
        return registered(self.opened.registry.folder, rule, **cluster)

    def snapshot(self) -> FleetSnapshot:
        return collect_snapshot(self.world.administration, SystemClock())

    def findings(self) -> set[tuple[FindingKind, str]]:
        """What the audit finds, and of which topic or broker."""
        registry = read_registry(self.opened.registry.folder / "clusters.yaml")
        found = audit(registry, {"shop": self.snapshot()}).findings
        return {(finding.kind, finding.subject) for finding in found}

    def recounted(self) -> AbstractContextManager[None]:
        return recounted(self.brokers.cluster, self.topic, PARTITIONS, value_bytes=20)

    def approved(self, dag_id: str, subject: str, **conf: Any) -> Plan:
        """The plan of a run that ada approves, which then has ended well, and left no throttle."""
        run_id, question = self.asked(dag_id, **conf)
        described, plan = self.planned(dag_id, run_id)
        assert question["subject"] == subject
        assert len(plan)
        self.answer("ada", dag_id, run_id, "Approve").raise_for_status()
        self.airflow.until_run(dag_id, run_id)
        record = self.kept.plans()[-1]
        assert (record.by, record.digest, set(record.outcomes)) == ("ada", described["digest"], {"d"})
        assert throttles_of(self.world.administration) == {}
        return plan

    def asked(self, dag_id: str, **conf: Any) -> tuple[str, dict[str, Any]]:
        """A run whose question is on the page of required actions; its id, and the question."""
        run_id: str = self.airflow.trigger(dag_id, poll_s=POLL_S, **conf)
        return run_id, self.question(dag_id, run_id)

    def question(self, dag_id: str, run_id: str) -> dict[str, Any]:
        url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails"

        def look() -> dict[str, Any] | None:
            failed = [task for task in self.airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
            assert not failed, self.airflow.log(failed[0])[-3000:]
            answer = self.airflow.api.get(url, params={"response_received": False})
            found = answer.raise_for_status().json()["hitl_details"]
            return found[0] if found else None

        asked: dict[str, Any] = self.airflow.until("question", look, QUESTION_S)
        return asked

    def answer(
        self, user: str, dag_id: str, run_id: str, option: str, task_id: str = "approve"
    ) -> httpx.Response:
        """What Airflow's form sends when somebody presses a button."""
        url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        with self.airflow.signed_in(user) as client:
            response: httpx.Response = client.patch(
                url, json={"chosen_options": [option], "params_input": {}}
            )
        return response

    def planned(self, dag_id: str, run_id: str) -> tuple[dict[str, Any], Plan]:
        described = self.airflow.result(self.airflow.task(dag_id, run_id, "plan"))
        return described, plan_from(self.opened.plans.read(described["path"]))

    def utilisation(self) -> list[float]:
        """Of each disk, by broker and directory."""
        dirs = self.snapshot().log_dirs
        return [float(share) for share in 1 - dirs.usable_bytes / dirs.total_bytes]

    def brokers_of(self, topic: str) -> set[int]:
        described = self.world.administration.describe_topics([topic])[topic]
        return {broker for partition in described.partitions for broker in partition.replicas}


@pytest.fixture(scope="module")
def fleet(airflow: Any, java: JavaArtifacts, module_folder: Path) -> Iterator[CaredFleet]:
    require_small_disks()
    folder = module_folder / "cared-fleet"
    # Two brokers are to hold everything in the end. A follower fetches a batch at a time, so that a low
    # throttle is one: Kafka lets the first fetch after a pause pass, however large it is.
    overrides = {"offsets.topic.replication.factor": 2, "replica.fetch.max.bytes": 65_536}
    racks = ("a", "a", "b")
    agents = Agents(folder / "agents")
    with Brokers(
        folder,
        java,
        racks=racks,
        disk_bytes=DISK_BYTES,
        overrides=overrides,
        jvm_options=agents.jvm_options,
    ) as brokers:
        settings = airflow.around.settings
        sources = agents.write_sources(Path(settings["RTOLAP_FLEET_SOURCES"]), brokers)
        world = world_of(brokers, "cared")
        topic = world.create([[1, 2] if number % 2 else [2, 1] for number in range(PARTITIONS)])
        pinned = world.create([[1, 2]])
        for partition in [*(Partition(topic, number) for number in range(PARTITIONS)), Partition(pinned, 0)]:
            world.fill(partition, SIZE_BYTES)
        cluster_id = world.administration.describe_cluster().cluster_id
        include = Path(settings["RTOLAP_INCLUDE_DIR"])
        connection = {"bootstrap.servers": brokers.cluster.servers}
        body = {"connection_id": "kafka_default", "conn_type": "kafka", "extra": json.dumps(connection)}
        airflow.api.post(CONNECTION, json=body).raise_for_status()
        store = store_of(settings)
        opened = OpenedFleet(
            world.administration,
            store,
            open_store(settings["RTOLAP_OBJECT_STORE"]),
            airflow.token,
            SystemClock(),
            HostRegistry(include, "default"),
        )
        mover_settings = {**settings, "RTOLAP_KAFKA": brokers.cluster.servers}
        cared = CaredFleet(airflow, brokers, world, opened, FleetStore(store, cluster_id), topic, pinned)
        registry = cared.register(1, 2)
        try:
            with MoverProcess(mover_settings, folder / "mover.log"):
                yield cared
            print((folder / "mover.log").read_text()[-3000:])
        finally:
            airflow.api.delete(f"{CONNECTION}/kafka_default").raise_for_status()
            registry.unlink()
            sources.unlink()
            store.close()
            world.administration.close()


def test_a_plan_that_a_person_rejects_moves_nothing(fleet: CaredFleet, sign_in: Callable[..., Page]) -> None:
    run_id, question = fleet.asked(BALANCE)
    check_question(sign_in, fleet, run_id)
    described, plan = fleet.planned(BALANCE, run_id)
    assert question["subject"] == "Move replicas to idle disks?"
    for shown in (f"digest {described['digest'][:12]}", "by the placement rules of shop", *plan.why):
        assert shown in question["body"]
    assert fleet.answer("viewer", BALANCE, run_id, "Approve").status_code == 403
    fleet.answer("ada", BALANCE, run_id, "Reject").raise_for_status()
    fleet.airflow.until_run(BALANCE, run_id)
    states = dict(fleet.airflow.states(BALANCE, run_id))
    assert [states[task] for task in ("approve", "submit", "watch", "in_sync_again")] == [
        "success",
        *["skipped"] * 3,
    ]
    assert fleet.kept.requests() == ()
    assert fleet.brokers_of(fleet.topic) == {1, 2}


def check_question(sign_in: Callable[..., Page], fleet: CaredFleet, run_id: str) -> None:
    """The page shows the fleet, what waits for an approval and what it would do, and leads to the form."""
    page = sign_in("ada", "?view=fleet", "dark")
    brokers = page.get_by_role("table", name="Brokers")
    expect(brokers.get_by_role("row", name=re.compile("^3 SERVING"))).to_be_visible()
    disks = page.get_by_role("table", name="Disks of brokers")
    expect(disks.get_by_role("row", name=re.compile("^1 .* ONLINE"))).to_have_count(2)
    expect(page.get_by_text("No plan was submitted.")).to_be_visible()
    expect(page.get_by_text(re.compile("^Slow brokers are not known"))).to_have_count(0)
    page.get_by_role("button", name="Show disks before and after").click()
    planned = page.get_by_role("table", name="Disks before and after the plan")
    expect(planned.get_by_role("row", name=re.compile("^3 .* %"))).to_have_count(2)
    assert serious_in(page) == []
    picture(page, "fleet-question")
    page.get_by_role("link", name="Answer in Airflow").click()
    expect(page).to_have_url(re.compile(f"/dags/{BALANCE}/runs/.*/tasks/approve/required_actions"))

    lost = sign_in("viewer", "?view=fleet&cluster=nowhere")
    expect(lost.get_by_text(re.compile("this host knows no Kafka cluster nowhere"))).to_be_visible()
    expect(lost.get_by_text("Move replicas to idle disks?")).to_be_visible()  # the rest stands


def test_a_plan_is_cancelled_on_the_page_by_who_may_and_by_nobody_else(
    fleet: CaredFleet, sign_in: Callable[..., Page]
) -> None:
    """Under a throttle with which its moves would take minutes."""
    airflow = fleet.airflow
    run_id, question = fleet.asked(BALANCE, throttle_bytes_per_s=CRAWLING_BYTES_PER_S)
    page = sign_in("ada", "?view=fleet")
    waits = page.get_by_role("article", name=question["subject"])
    waits.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    expect(page.get_by_text(re.compile("Approve is recorded, as the answer of ada"))).to_be_visible()
    airflow.until_task(BALANCE, run_id, "success", task_id="submit")
    (record,) = fleet.kept.plans()
    page = sign_in("viewer", "?view=fleet")
    expect(page.get_by_text(record.plan_id).first).to_be_visible()
    moves = page.get_by_role("table", name="Moves under way")
    expect(moves.get_by_role("row", name=re.compile(f"^{fleet.topic}:"))).not_to_have_count(0)
    expect(page.get_by_text("Submitted by ada")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel the plan")).to_have_count(0)
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    with slow_writes(fleet):
        stages = page.get_by_role("table", name="Stages of requests")
        slow = stages.get_by_role("row", name=re.compile("^1 Produce SLOW"))
        expect(slow).to_contain_text("remote", timeout=patience_s(120_000))
        expect(moves.get_by_role("row", name=re.compile(f"^{fleet.topic}:"))).not_to_have_count(0)
    picture(page, "fleet-slow")
    conf = {"plan_id": record.plan_id}
    with airflow.signed_in("viewer") as client:
        answer = client.post(f"/api/v2/dags/{CANCEL}/dagRuns", json={"logical_date": None, "conf": conf})
    assert answer.status_code == 403
    assert serious_in(page) == []

    airflow.unpause(CANCEL)
    page = sign_in("ada", "?view=fleet")
    page.get_by_role("button", name="Cancel the plan").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(MARKUP)
    dialog.get_by_label(re.compile("to confirm")).fill(record.plan_id)
    dialog.get_by_role("button", name="Start").click()
    link = dialog.get_by_role("status").get_by_role("link")
    expect(link).to_be_visible()
    airflow.until_run(CANCEL, link.inner_text())
    airflow.until_run(BALANCE, run_id, "failed")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text(re.compile("[0-9] cancelled"))).to_be_visible()
    picture(
        page, "fleet", "The Kafka fleet: a plan that is carried out, its moves, and how full the disks are"
    )
    (ended,) = fleet.kept.plans()
    assert "c" in ended.outcomes
    assert set(ended.outcomes) <= {"c", "d"}
    (request,) = [each for each in fleet.kept.requests() if each.kind is RequestKind.CANCEL]
    assert (request.by, request.reason) == ("ada", MARKUP)
    assert throttles_of(fleet.world.administration) == {}
    assert fleet.opened.running() == []


@contextmanager
def slow_writes(fleet: CaredFleet) -> Iterator[None]:
    """Clients write to broker 1, with acks of all, while its follower 2 is stopped again and again."""
    over = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        config = {"bootstrap.servers": fleet.brokers.cluster.servers, "acks": "all", "linger.ms": 0}
        producer = Producer(config)
        while not over.is_set():
            producer.produce(fleet.pinned, b"slow", partition=0)
            if producer.flush(patience_s(60)):
                failures.append(TimeoutError("a write is not acknowledged"))
                return

    def stop_again_and_again() -> None:
        pid = fleet.brokers.servers[2].pid()
        assert pid is not None
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            try:
                over.wait(STOPPED_S)  # the fault itself takes time
            finally:
                os.kill(pid, signal.SIGCONT)
            over.wait(RUNNING_S)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(WRITERS)]
    threads.append(threading.Thread(target=stop_again_and_again, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def seen(fleet: CaredFleet, sensor: type[FleetSensor]) -> bool:
    """Is what the sensor waits for so?"""
    return sensor(task_id="seen").look(fleet.opened).done


def test_an_unbalanced_fleet_becomes_balanced_as_a_person_has_approved(
    fleet: CaredFleet, java: JavaArtifacts, tmp_path: Path
) -> None:
    """Under records that are written and read; what was changed after its approval is refused first."""
    airflow, before, requests = fleet.airflow, fleet.utilisation(), fleet.kept.requests()
    with fleet.recounted():
        run_id, _ = fleet.asked(BALANCE, throttle_bytes_per_s=SLOW_BYTES_PER_S)
        described, plan = fleet.planned(BALANCE, run_id)
        approved = fleet.opened.plans.read(described["path"])
        changed = plan_json(replace(plan, throttle_bytes_per_s=10**9))
        fleet.opened.plans.write(described["path"], changed)
        fleet.answer("ada", BALANCE, run_id, "Approve").raise_for_status()
        airflow.until_run(BALANCE, run_id, "failed")
        submit = airflow.task(BALANCE, run_id, "submit")
        assert (submit["state"], submit["try_number"]) == ("failed", 1)
        airflow.until_logged(submit, "the plan is not the one that was approved")
        assert fleet.kept.requests() == requests

        fleet.opened.plans.write(described["path"], approved)
        airflow.clear(BALANCE, run_id, "submit", "watch", "in_sync_again")
        assert seen(fleet, NoMovesRunningSensor)
        until(lambda: not seen(fleet, NoMovesRunningSensor), "a plan that is carried out", poll_s=0.1)
        until(lambda: not seen(fleet, NoUnderReplicatedPartitionSensor), "a copy under way", poll_s=0.1)
        airflow.until_task(BALANCE, run_id, "success", task_id="watch")
        airflow.until_run(BALANCE, run_id)
        assert seen(fleet, NoMovesRunningSensor)
        assert seen(fleet, NoUnderReplicatedPartitionSensor)

    record = fleet.kept.plans()[-1]
    assert (record.by, record.digest, set(record.outcomes)) == ("ada", described["digest"], {"d"})
    expected = plan.disks.utilisation(plan.disks.after_bytes).tolist()
    written_share = 0.02  # what came meanwhile, and what brokers keep of themselves
    spread_max = spread(expected) + written_share
    assert spread(before) > 2 * spread_max
    until(
        lambda: spread(fleet.utilisation()) <= spread_max,  # what is moved is deleted a moment later
        f"disks as full as the plan says: {expected}",
        poll_s=0.2,
    )
    assert np.allclose(fleet.utilisation(), expected, atol=written_share)
    assert fleet.brokers_of(fleet.topic) == {1, 2, 3}
    assert fleet.brokers_of(fleet.pinned) == {1, 2}
    check_by_tool(java, fleet, plan, tmp_path)


def test_replicas_that_share_a_rack_are_moved_apart_as_a_person_has_approved(
    fleet: CaredFleet, java: JavaArtifacts, tmp_path: Path
) -> None:
    """The registry is another by now: the pinned topic is to stand at 1 and 3, and so in two racks. A DAG of
    somebody else starts once the plan is done."""
    fleet.airflow.unpause(REPORT)
    fleet.register(1, 3)
    shared = {(kind, topic) for kind in RACK_KINDS for topic in (fleet.topic, fleet.pinned)}
    assert fleet.findings() == {*shared, (FindingKind.PLACEMENT, fleet.pinned)}
    with fleet.recounted():
        plan = fleet.approved(RACK_REPAIR, "Move replicas apart, to racks of their own?")
    assert fleet.findings() == set()
    assert fleet.brokers_of(fleet.pinned) == {1, 3}
    check_by_tool(java, fleet, plan, tmp_path)
    told = {"cluster": "default", "by": "ada", **fleet.opened.finished(fleet.kept.plans()[-1].plan_id)}
    assert told["moves"] == len(plan)
    assert told["bytes"] == int(plan.between_brokers_bytes) > 0

    events = fleet.airflow.asset_events(finished_plans("default").name)
    assert [event["extra"] for event in events if event["extra"]["plan"] == told["plan"]] == [told]

    def reported() -> bool | None:
        ended = [task for task in fleet.airflow.tasks(REPORT) if task["state"] == "success"]
        return any(told in fleet.airflow.result(task) for task in ended) or None

    fleet.airflow.until("run of somebody else's DAG, which the plan has started", reported)
    fleet.airflow.pause(REPORT)


def test_a_broker_is_drained_as_a_person_has_approved(
    fleet: CaredFleet, java: JavaArtifacts, tmp_path: Path
) -> None:
    with fleet.recounted():
        plan = fleet.approved(DRAIN, "Move all replicas away from a broker?", broker=2)
    view = fleet.opened.brokers.view(2)
    assert (view.state, view.replicas) == (BrokerLife.DRAINED, 0)
    assert fleet.brokers_of(fleet.topic) == {1, 3}
    assert fleet.findings() == set()
    check_by_tool(java, fleet, plan, tmp_path)


def test_a_broker_is_emptied_retired_and_forgotten_as_a_person_has_approved(fleet: CaredFleet) -> None:
    """It was taken back, and holds a replica again."""
    take_back(fleet, 2, Partition(fleet.topic, 0))
    airflow = fleet.airflow
    run_id, question = fleet.asked(RETIRE, broker=2)
    assert question["subject"] == "Move all replicas away from a broker, and retire it?"
    fleet.answer("ada", RETIRE, run_id, "Approve").raise_for_status()
    for task_id in ("submit", "watch", "retire"):
        airflow.until_task(RETIRE, run_id, "success", task_id=task_id)
    assert fleet.opened.brokers.view(2).state is BrokerLife.RETIRING
    assert fleet.brokers_of(fleet.topic) == {1, 3}
    assert 2 in registered_brokers(fleet)
    fleet.brokers.servers[2].stop()
    airflow.until_run(RETIRE, run_id)
    assert airflow.result(airflow.task(RETIRE, run_id, "gone")) == "RETIRED"
    assert registered_brokers(fleet) == [1, 3]
    assert fleet.opened.under_replicated() == []


def test_a_broker_is_stopped_repaired_and_serves_again_as_a_person_has_approved(fleet: CaredFleet) -> None:
    """Its machine comes back with empty disks, which are filled before the run ends."""
    airflow = fleet.airflow
    run_id, question = fleet.asked(REPAIR, broker=3)
    assert "is SERVING" in question["body"]
    fleet.answer("ada", REPAIR, run_id, "Approve").raise_for_status()
    airflow.until_task(REPAIR, run_id, "success", task_id="repair")
    assert fleet.opened.brokers.view(3).state is BrokerLife.REPAIRING
    assert fleet.question(REPAIR, run_id)["subject"] == "Is the machine repaired?"
    fleet.brokers.servers[3].stop()
    fleet.answer("ada", REPAIR, run_id, "Approve", "well_again").raise_for_status()
    airflow.until_task(REPAIR, run_id, "success", task_id="repaired")
    assert fleet.opened.under_replicated() != []
    fleet.brokers.servers[3].start()
    airflow.until_run(REPAIR, run_id)
    view = fleet.opened.brokers.view(3)
    assert (view.state, view.problem) == (BrokerLife.SERVING, None)
    assert fleet.opened.under_replicated() == []


def registered_brokers(fleet: CaredFleet) -> list[int]:
    return [broker.broker_id for broker in fleet.world.administration.describe_cluster().brokers]


def check_by_tool(java: JavaArtifacts, fleet: CaredFleet, plan: Plan, folder: Path) -> None:
    """Kafka's own tool reads the plan, and says that every replica is where it asks for."""
    file = folder / "kafka.json"
    file.write_bytes(kafka_json(plan))
    told = verify_plan(java, fleet.brokers.cluster, file)
    assert told.count("is completed") >= len(plan)
    assert "still in progress" not in told


def take_back(fleet: CaredFleet, broker: int, partition: Partition) -> None:
    """Uncordon a broker, and let it hold a replica of the partition instead of broker 1."""
    snapshot, opened = fleet.snapshot(), fleet.opened
    drains = PlannedDrains(
        opened.administration, fleet.kept, opened.clock, opened.token, registered_of=lambda _: None
    )
    actions = ClusterActions(opened.administration, drains)
    operations = BrokerOperations(opened.metadata, snapshot.cluster_id, actions, opened.clock)
    operations.operate(broker, BrokerEvent.UNCORDON, "ada", "it is well", snapshot)
    assert opened.administration.reassign({partition: [3, broker]}) == {}
    until(lambda: not opened.running() and not opened.under_replicated(), "its replica", poll_s=0.2)
    assert fleet.opened.brokers.view(broker).state is BrokerLife.SERVING


def spread(utilisation: list[float]) -> float:
    return max(utilisation) - min(utilisation)
