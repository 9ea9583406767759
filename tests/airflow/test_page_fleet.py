"""The view of the Kafka fleet: a cluster in memory with a real mover, through the routes."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from rtolap.airflow.hooks.fleet import FleetHook, SlowBrokers
from rtolap.airflow.operators import fleet as operators
from rtolap.airflow.operators.fleet import CancelPlanOperator
from rtolap.airflow.page import fleet_routes, rights
from rtolap.airflow.page.answers import TOO_LATE
from rtolap.airflow.page.fleet import NO_SOURCES, share
from rtolap.airflow.page.fleet_messages import Fleet, FleetPlan, PlannedDisks
from rtolap.airflow.page.rights import reader
from rtolap.airflow.plugin import app
from rtolap.base.errors import DefinitionError, Unanswered, Unavailable
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.moves import submitting
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.operations.cluster import OpenedFleet
from rtolap.fleet.operations.look import FleetLook, look_at_fleet, stages_of
from rtolap.kafka.administration.values import Partition
from rtolap.object_store.store import open_store

from tests.support.fleet.broker_lives import CLUSTER_ID, TOKEN, BrokerLives, mover_of
from tests.support.waiting import until

PATHS = ("/page/fleet", f"/page/fleet/plans/{'0' * 64}")
BY_ANN: Any = {"dag_run": SimpleNamespace(triggering_user_name="ann")}


@pytest.fixture
def lives() -> Iterator[BrokerLives]:
    made = BrokerLives()
    yield made
    made.close()


@pytest.fixture
def fleet(lives: BrokerLives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedFleet:
    store = f"file://{tmp_path}"
    registry = HostRegistry(tmp_path, "default")
    opened = OpenedFleet(lives.administration, lives.store, open_store(store), TOKEN, lives.clock, registry)
    monkeypatch.setattr(FleetHook, "look", lambda _hook: look_at_fleet(opened))
    monkeypatch.setattr(fleet_routes, "slow_brokers", SlowBrokers)
    monkeypatch.setenv("RTOLAP_OBJECT_STORE", store)
    monkeypatch.delenv("RTOLAP_FLEET_SOURCES", raising=False)
    monkeypatch.setitem(app.dependency_overrides, reader, lambda: None)
    return opened


def asked(path: str = "/page/fleet") -> Fleet:
    answer = TestClient(app).get(path)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Fleet)


def plan_shown() -> FleetPlan:
    plan = asked().plan
    assert plan is not None
    return plan


def test_brokers_are_shown_with_how_full_their_disks_are_and_who_says_nothing(
    lives: BrokerLives, fleet: OpenedFleet
) -> None:
    lives.kafka.brokers[4].silent = True
    lives.kafka.brokers[5].alive = False
    seen = asked()
    assert seen.error == ""
    assert [(each.broker, each.state, each.rack) for each in seen.brokers][:2] == [
        (1, "SERVING", "rack1"),
        (2, "SERVING", "rack2"),
    ]
    assert {each.broker for each in seen.brokers if each.error} == {4}
    disks = {(each.broker, each.path): each for each in seen.disks}
    assert {broker for broker, _ in disks} == {1, 2, 3}
    full, empty = disks[1, "/d0"], disks[1, "/d1"]
    assert (full.used_bytes, full.used) == (40, 40 / 10_000)
    assert (empty.used_bytes, empty.used) == (0, 0.0)
    assert (seen.plan, seen.clusters) == (None, ("default",))


def test_a_plan_is_shown_with_its_stages_moves_and_bytes_until_it_ends(
    lives: BrokerLives, fleet: OpenedFleet
) -> None:
    planned = fleet.plan("drain", 2, 1_000_000)
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    with mover_of(lives):
        plan_id = fleet.submit(planned, "ann")
        running = plan_shown()
        assert (running.plan_id, running.digest, running.by) == (plan_id, planned["digest"], "ann")
        assert running.total_bytes == 40
        until(lambda: plan_shown().moves, "a move under way", poll_s=0.01)

        def nearly_done() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(100)
            return plan_shown().counts.get("done") == 3

        until(nearly_done, "all but the stuck move done", poll_s=0.01)
        left = plan_shown()
        assert [(each.stage, each.moves, each.ended, each.moved_bytes) for each in left.stages] == [
            (1, 4, 3, 30)
        ]
        assert (left.left_bytes, left.moved_bytes) == (10, 30)
        assert [(each.partition, each.size_bytes) for each in left.moves] == [("paid:1", 10)]
        assert [line for line in left.warnings if "The end waits for paid:1" in line]
        lives.kafka.partitions[Partition("paid", 1)].stuck = False

        def ended() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(1000)
            return plan_shown().state == "ended"

        until(ended, "the plan has ended", poll_s=0.01)
    last = plan_shown()
    assert (last.counts, last.left_bytes, last.moves, last.warnings) == ({"done": 4}, 0, (), ())


def test_a_plan_without_a_mover_says_so_and_promises_no_end(lives: BrokerLives, fleet: OpenedFleet) -> None:
    planned = fleet.plan("drain", 2, 1_000_000)
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    with mover_of(lives):
        fleet.submit(planned, "ann")
    shown = plan_shown()
    assert shown.expected_end_ms is None
    assert [line for line in shown.warnings if line.startswith("No mover serves")]


def test_disks_are_shown_before_and_after_a_plan_that_waits_for_its_approval(
    lives: BrokerLives, fleet: OpenedFleet
) -> None:
    planned = fleet.plan("drain", 2, 1_000_000)
    answer = TestClient(app).get(f"/page/fleet/plans/{planned['digest']}")
    seen = msgspec.json.decode(answer.content, type=PlannedDisks)
    assert (seen.kind, seen.partitions, seen.moved_bytes) == ("drain", 4, 40)
    drained = [each for each in seen.disks if each.broker == 2]
    assert [(each.path, each.before, each.after) for each in drained] == [
        ("/d0", 40 / 10_000, 0.0),
        ("/d1", 0.0, 0.0),
    ]
    taken = sum(each.after or 0 for each in seen.disks)
    assert math.isclose(taken, sum(each.before or 0 for each in seen.disks))


def test_a_plan_that_nobody_made_or_that_was_changed_is_refused(
    fleet: OpenedFleet, lives: BrokerLives
) -> None:
    client = TestClient(app)
    assert client.get(f"/page/fleet/plans/{'0' * 64}").status_code == 404
    assert client.get("/page/fleet/plans/..%2F..%2Fsecret").status_code in (404, 422)
    one, other = fleet.plan("drain", 2, 1_000_000), fleet.plan("drain", 3, 1_000_000)
    fleet.plans.write(one["path"], fleet.plans.read(other["path"]))
    answer = client.get(f"/page/fleet/plans/{one['digest']}")
    assert answer.status_code == 409
    assert "another plan" in answer.json()["message"]


def test_a_cluster_that_is_away_or_hangs_is_named_and_the_rest_is_answered(
    fleet: OpenedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()

    def away(_hook: FleetHook) -> FleetLook:
        raise Unavailable("no broker answers")

    def hangs(_hook: FleetHook) -> FleetLook:
        ends.wait(60)
        raise Unavailable("it hung")

    monkeypatch.setattr(fleet_routes, "ANSWER_S_MAX", 0.5)
    try:
        for look, error in ((away, "no broker answers"), (hangs, TOO_LATE)):
            monkeypatch.setattr(FleetHook, "look", look)
            seen = asked("/page/fleet?cluster=other")
            assert (seen.error, seen.plan, seen.disks) == (error, None, ())
            assert (seen.slow_error, seen.clusters) == (NO_SOURCES, ("default", "other"))
    finally:
        ends.set()


def test_wrong_sources_of_metrics_hide_no_broker(
    fleet: OpenedFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "sources.yaml"
    sources.write_text("brokers: 7\n")
    sources.chmod(0o600)
    monkeypatch.setenv("RTOLAP_FLEET_SOURCES", str(sources))
    seen = asked()
    assert "declares no sources" in seen.slow_error
    assert len(seen.brokers) == 5


def test_a_wrong_file_of_clusters_hides_no_slow_broker(
    fleet: OpenedFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = tmp_path / "clusters-of-kafka.yaml"
    clusters.write_text("7\n")
    monkeypatch.setenv("RTOLAP_KAFKA_CLUSTERS", str(clusters))
    assert asked().clusters == ("default",)


def test_sources_that_were_changed_are_watched_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "sources.yaml"
    monkeypatch.setenv("RTOLAP_FLEET_SOURCES", str(sources))
    watch = SlowBrokers()
    for broker in (7, 8):
        sources.write_text(f"brokers: {{{broker}: {{jolokia: 'http://127.0.0.1:1/jolokia'}}}}\n")
        sources.chmod(0o600)
        look = watch.look()
        assert look is not None
        assert [each.broker for each in look.missing] == [broker]


# -- cancelled -------------------------------------------------------------------------------------------


def cancelled(plan_id: str, context: Any = BY_ANN) -> str:
    return CancelPlanOperator(task_id="cancel", plan_id=plan_id, reason="too slow").execute(context)


@pytest.fixture
def opened_for_tasks(fleet: OpenedFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hook:
        def opened(self) -> Any:
            return _Opened(fleet)

    monkeypatch.setattr(operators, "open_fleet", lambda *_: Hook())


class _Opened:
    def __init__(self, fleet: OpenedFleet) -> None:
        self._fleet = fleet

    def __enter__(self) -> OpenedFleet:
        return self._fleet

    def __exit__(self, *about: object) -> None:
        """The test closes it."""


@pytest.mark.usefixtures("opened_for_tasks")
def test_a_plan_is_cancelled_once_in_the_name_of_who_started_the_run(
    lives: BrokerLives, fleet: OpenedFleet
) -> None:
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    fleet_store = FleetStore(lives.store, CLUSTER_ID)
    with mover_of(lives):
        plan_id = fleet.submit(fleet.plan("drain", 2, 1_000_000), "bob")
        assert plan_id is not None
        assert "cancelling" in cancelled(plan_id)
        assert plan_id in cancelled(plan_id)  # a task that is tried again

        def ended() -> bool:
            lives.kafka.settle()
            lives.clock.advance_ms(1000)
            return fleet_store.current() is None

        until(ended, "the plan has ended", poll_s=0.01)
        assert "ended" in cancelled(plan_id)
    asked_for = [(each.by, each.reason) for each in fleet_store.requests() if each.kind == "cancel"]
    assert asked_for == [("ann", "too slow")]
    assert plan_shown().counts.get("cancelled", 0) >= 1


@pytest.mark.parametrize("state", PlanState)
@pytest.mark.usefixtures("opened_for_tasks")
def test_a_plan_that_is_cancelled_already_or_has_ended_is_asked_for_nothing(
    lives: BrokerLives, monkeypatch: pytest.MonkeyPatch, state: PlanState
) -> None:
    monkeypatch.setattr(submitting, "ANSWER_TIMEOUT_S", 0.1)
    record = PlanRecord("p-1", CLUSTER_ID, "d", state, 1, "bob", "..")
    lives.store.commit(FleetStore(lives.store, CLUSTER_ID).begin_plan(record))
    if state in (PlanState.QUEUED, PlanState.RUNNING, PlanState.PAUSED):
        with pytest.raises(Unanswered):  # no mover serves
            cancelled("p-1")
    else:
        assert cancelled("p-1") == f"plan p-1: {state}"


@pytest.mark.usefixtures("opened_for_tasks")
def test_a_plan_that_nobody_knows_cannot_be_cancelled(fleet: OpenedFleet) -> None:
    with pytest.raises(Exception, match="there is no plan nothing") as refused:
        cancelled("nothing", {})
    assert isinstance(refused.value.__cause__, DefinitionError)


def test_the_page_asks_whether_a_user_may_cancel() -> None:
    assert "rtolap_fleet_cancel" in rights.STARTED_BY_THE_PAGE


# -- pure ------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(".dcf"), st.integers(0, 50)), min_size=1, max_size=30
    )
)
def test_stages_add_up_to_the_plan(moves: list[tuple[int, str, int]]) -> None:
    moves = sorted(moves)
    sizes = np.array([size for _, _, size in moves], np.int64)
    stages = np.array([stage for stage, _, _ in moves], np.int64)
    planned = PlanMoves((), None, sizes, sizes, stages, {})  # type: ignore[arg-type]
    outcomes = "".join(outcome for _, outcome, _ in moves)
    record = PlanRecord("p", "c", "d", PlanState.RUNNING, 1, "ann", outcomes)
    found = stages_of(record, planned)
    assert [each.stage for each in found] == sorted({stage + 1 for stage, _, _ in moves})
    assert sum(each.moves for each in found) == len(moves)
    assert sum(each.ended for each in found) == len(moves) - outcomes.count(".")
    assert sum(each.total_bytes for each in found) == int(sizes.sum())
    assert sum(each.moved_bytes for each in found) == sum(
        size for _, outcome, size in moves if outcome == "d"
    )


@pytest.mark.parametrize(("value", "expected"), [(0.5, 0.5), (float("nan"), None)])
def test_what_is_not_known_is_no_number(value: float, expected: float | None) -> None:
    assert share(value) == expected


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", PATHS)
def test_nobody_sees_the_fleet_who_may_not_read(
    path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise HTTPException(status)

    monkeypatch.setitem(app.dependency_overrides, reader, refuse)
    assert TestClient(app).get(path).status_code == status
