"""Plans and brokers' lives in Airflow: approved by somebody, done once, watched to their end."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from rtolap.airflow.fleet_looks import LOOKS, LookResult
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators import fleet as operators
from rtolap.airflow.operators.fleet import BrokerOperationOperator, PlanFleetOperator, SubmitPlanOperator
from rtolap.airflow.outlets.plans import FINISHED_PLANS, finished_plans
from rtolap.airflow.sensors import fleet as sensors
from rtolap.airflow.sensors.fleet import (
    BrokerMayRetireSensor,
    BrokerMayStopSensor,
    BrokerStateSensor,
    FleetSensor,
    NoMovesRunningSensor,
    NoUnderReplicatedPartitionSensor,
    PlanEndedSensor,
)
from rtolap.airflow.triggers import fleet as triggers
from rtolap.airflow.triggers.fleet import FleetTrigger
from rtolap.base.errors import NotYet, PlanChanged, Refused, Unauthorized, Unavailable
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.lifecycle.states import BrokerLife
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.operations.cluster import OpenedFleet
from rtolap.fleet.snapshot.rates import TopicRates
from rtolap.kafka.administration.values import Partition
from rtolap.object_store.store import open_store

from tests.airflow.task_context import events_of, task_context
from tests.support.fleet.broker_lives import CLUSTER_ID, TOKEN, BrokerLives, mover_of
from tests.support.fleet.registries import registered
from tests.support.waiting import until

APPROVED = {"chosen_options": ["Approve"], "responded_by_user": {"id": "ann", "name": "ann"}}
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="a_dag", run_id="a_run")}


class _Hook:
    def __init__(self, fleet: OpenedFleet) -> None:
        self._fleet = fleet

    async def load(self) -> None: ...

    @contextmanager
    def opened(self) -> Iterator[OpenedFleet]:
        yield self._fleet


def registry_folder(tmp_path: Path) -> Path:
    """Without a registry, until a test writes one."""
    folder = tmp_path / "include"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerLives]:
    made = BrokerLives()
    plans = open_store(f"file://{tmp_path}")
    registry = HostRegistry(registry_folder(tmp_path), "default")
    fleet = OpenedFleet(made.administration, made.store, plans, TOKEN, made.clock, registry)
    for module in (operators, sensors, triggers):
        monkeypatch.setattr(module, "open_fleet", lambda *_: _Hook(fleet))
    yield made
    made.close()


def looked(sensor: FleetSensor) -> LookResult:
    with sensor.client(RtolapHook()) as fleet:
        seen = sensor.look(fleet)
    if seen.failed is not None:
        with pytest.raises(AirflowFailException, match=re.escape(seen.failed)):
            sensor.execute(CONTEXT)
    elif seen.done:
        assert sensor.execute(task_context()) == seen.result
    return seen


def planned(kind: str = "drain", broker: str | None = "2") -> dict[str, Any]:
    return PlanFleetOperator(task_id="plan", kind=kind, broker=broker).execute(CONTEXT)


def submitted(plan: dict[str, Any], answer: Any = APPROVED) -> Any:
    return SubmitPlanOperator(task_id="submit", planned=plan, answer=answer).execute(CONTEXT)


def test_a_plan_is_shown_with_its_reasons_and_bytes_and_skipped_where_nothing_moves(
    lives: BrokerLives,
) -> None:
    plan = planned()
    assert plan["partitions"] == 4
    assert f"digest {plan['digest'][:12]}" in plan["text"]
    with pytest.raises(AirflowSkipException, match="nothing is to be moved"):
        planned(broker="5")


def test_a_plan_knows_what_is_written_meanwhile_where_the_host_reads_the_brokers_metrics(
    lives: BrokerLives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_written_on(brokers: Collection[int]) -> TopicRates:
        ids = sorted(brokers)
        topics = lives.administration.describe_topics()
        rows = [(broker, topic) for broker in ids for topic in sorted(topics)]
        rates = np.full(len(rows), 1e12)
        told = np.array([broker for broker, _ in rows], np.int32)
        return TopicRates(told, tuple(topic for _, topic in rows), rates, rates, frozenset(ids), {})

    assert planned()["expected_s"] is not None
    fleet = OpenedFleet(
        *(lives.administration, lives.store, open_store(f"file://{tmp_path}"), TOKEN, lives.clock),
        HostRegistry(registry_folder(tmp_path), "default"),
        all_written_on,
    )
    monkeypatch.setattr(operators, "open_fleet", lambda *_: _Hook(fleet))
    plan = planned()
    assert plan["expected_s"] is None
    assert "without end under the throttle" in plan["text"]
    assert "Under its throttle the plan would never end" in plan["text"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"chosen_options": ["Approve"], "responded_by_user": None},
        {"chosen_options": ["Reject"], "responded_by_user": {"id": "ann", "name": "ann"}},
    ],
)
def test_without_somebodys_approval_nothing_is_submitted(lives: BrokerLives, answer: Any) -> None:
    with pytest.raises(AirflowFailException, match="nobody has approved"):
        submitted(planned(), answer)
    assert FleetStore(lives.store, CLUSTER_ID).requests() == ()


def test_an_approved_drain_cordons_moves_once_and_ends(lives: BrokerLives) -> None:
    plan = planned()
    with mover_of(lives):
        plan_id = submitted(plan)
        assert submitted(plan) == plan_id
        record = lives.operations().records()[2]
        assert (record.state, record.last.by) == (BrokerLife.DRAINING, "ann")
        assert lives.cordoned(2)
        assert not looked(NoMovesRunningSensor(task_id="still")).done
        watch = PlanEndedSensor(task_id="watch", plan_id=plan_id)

        def ended() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(1000)
            return looked(watch).done

        until(ended, "the plan has ended", poll_s=0.01)
    assert looked(watch).result == {"done": 4}
    ctx = task_context()
    watch.execute(ctx)
    sizes = [record.size_bytes for record in moved_of(lives, plan_id)]
    told = {"cluster": "default", "plan": plan_id, "moves": 4, "bytes": sum(sizes), "by": "ann"}
    assert events_of(ctx, FINISHED_PLANS) == [(finished_plans("default").name, told)]
    assert looked(NoMovesRunningSensor(task_id="none")).done
    assert looked(NoUnderReplicatedPartitionSensor(task_id="sync")).done
    submits = [each for each in FleetStore(lives.store, CLUSTER_ID).requests() if each.plan_id == plan_id]
    assert [each.by for each in submits] == ["ann"]


def moved_of(lives: BrokerLives, plan_id: str) -> Any:
    """The moves of a plan in which one copy comes each."""
    store = FleetStore(lives.store, CLUSTER_ID)
    record = next(each for each in store.plans() if each.plan_id == plan_id)
    moves = store.read_moves(plan_id, record.moves_digest)
    assert {len(move.coming()) for move in moves} == {1}
    return moves


def test_nothing_is_announced_where_nothing_had_to_be_moved(lives: BrokerLives) -> None:
    ctx = task_context()
    assert PlanEndedSensor(task_id="watch", plan_id=None).execute(ctx) == {}
    assert events_of(ctx, FINISHED_PLANS) == []


def test_a_plan_that_somebody_changed_or_that_is_outdated_is_refused(lives: BrokerLives) -> None:
    plan = planned("rack", None)
    with pytest.raises(AirflowFailException, match="not the one that was approved") as refused:
        submitted({**plan, "digest": "0" * 64})
    assert isinstance(refused.value.__cause__, PlanChanged)
    for partition in list(lives.kafka.partitions):
        lives.administration.reassign({partition: [4, 5]})
    lives.finish_moves()
    with pytest.raises(AirflowFailException, match="no longer what the plan was made of"):
        submitted(plan)
    assert FleetStore(lives.store, CLUSTER_ID).requests() == ()


@pytest.mark.parametrize("kind", ["rack", "drain"])
def test_a_plan_for_another_cluster_than_the_connection_names_is_refused(
    lives: BrokerLives, kind: str
) -> None:
    plan = planned(kind, "2" if kind == "drain" else None)
    lives.kafka.cluster_id = "another"
    with pytest.raises(AirflowFailException, match="made for another cluster"):
        submitted(plan)
    for cluster_id in (CLUSTER_ID, "another"):
        assert FleetStore(lives.store, cluster_id).requests() == ()


def test_a_replica_that_is_out_of_sync_is_waited_for(lives: BrokerLives) -> None:
    sensor = NoUnderReplicatedPartitionSensor(task_id="sync")
    assert looked(sensor).done
    lives.kafka.stop_broker(2)
    assert not looked(sensor).done


def test_a_plan_that_was_cancelled_fails_its_run(lives: BrokerLives) -> None:
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    with mover_of(lives):
        plan_id = submitted(planned())
        watch = PlanEndedSensor(task_id="watch", plan_id=plan_id)
        assert not looked(watch).done
        requests = MoverRequests(FleetStore(lives.store, CLUSTER_ID), lives.clock, TOKEN, "bob")
        requests.ask(RequestKind.CANCEL, plan_id=plan_id)

        def ended() -> bool:
            lives.kafka.settle()
            lives.clock.advance_ms(1000)
            return FleetStore(lives.store, CLUSTER_ID).current() is None

        until(ended, "the plan has ended", poll_s=0.01)
    assert "has ended with" in str(looked(watch).failed)


def test_plans_keep_to_the_registry_as_it_is_when_they_are_made_and_when_they_are_submitted(
    lives: BrokerLives, tmp_path: Path
) -> None:
    unruled = planned()
    assert "without placement rules" in unruled["text"]
    registered(registry_folder(tmp_path), "{match: [paid], brokers: [1, 2, 3, 4]}")
    with pytest.raises(AirflowFailException, match="comes to a broker where its topic may not stand"):
        submitted(unruled)
    assert 2 not in lives.operations().records()  # the drain was not begun
    plan = planned()
    assert "by the placement rules of default in the registry" in plan["text"]
    with mover_of(lives):
        plan_id = submitted(plan)
        run_until_ended(lives, plan_id)
    assert not any(5 in known.replicas for known in lives.kafka.partitions.values())


def run_until_ended(lives: BrokerLives, plan_id: str) -> None:
    watch = PlanEndedSensor(task_id="watch", plan_id=plan_id)

    def ended() -> bool:
        lives.kafka.advance(1.0)
        lives.clock.advance_ms(1000)
        return looked(watch).done

    until(ended, "the plan has ended", poll_s=0.01)


def operated(operation: Any, answer: Any = APPROVED, broker: str = "2") -> str:
    lives_on = BrokerOperationOperator(task_id=operation, operation=operation, broker=broker, answer=answer)
    return str(lives_on.execute(CONTEXT))


def is_in(state: str, broker: str = "2") -> bool:
    return looked(BrokerStateSensor(task_id="state", state=state, broker=broker)).done


def test_a_broker_is_stopped_repaired_and_serves_again_as_people_have_approved(lives: BrokerLives) -> None:
    may_stop = looked(BrokerMayStopSensor(task_id="may_stop", broker="2"))
    assert may_stop.done
    assert "broker 2 on host2 is SERVING" in may_stop.result["text"]
    for answer in (None, {**APPROVED, "chosen_options": ["Reject"]}):
        with pytest.raises(AirflowFailException, match="nobody has approved"):
            operated("repair", answer)
    assert is_in("SERVING")
    assert [operated("repair"), operated("repair")] == ["REPAIRING", "REPAIRING"]
    assert lives.cordoned(2)
    lives.kafka.stop_broker(2)
    assert operated("repaired") == "JOINING"
    assert not is_in("SERVING")
    lives.kafka.start_broker(2)
    lives.clock.advance_ms(1)
    assert is_in("SERVING")
    assert not lives.cordoned(2)
    entries = [(entry.by, entry.after, entry.reason) for entry in lives.operations().entries(2)]
    assert entries[1:] == [
        ("ann", BrokerLife.CORDONED, "approved in Airflow: a_dag, run a_run"),
        ("ann", BrokerLife.REPAIRING, "approved in Airflow: a_dag, run a_run"),
        ("ann", BrokerLife.JOINING, "approved in Airflow: a_dag, run a_run"),
        ("observation", BrokerLife.SERVING, entries[-1][2]),
    ]


def test_a_broker_without_which_writing_would_end_is_waited_for_and_not_cordoned(lives: BrokerLives) -> None:
    lives.kafka.inherited["min.insync.replicas"] = "2"
    assert not looked(BrokerMayStopSensor(task_id="may_stop", broker="2")).done
    with pytest.raises(Refused, match="writing would end for paid:0"):
        operated("repair")
    assert not lives.cordoned(2)


def test_a_broker_retires_when_it_is_empty_and_is_forgotten_when_it_is_gone(lives: BrokerLives) -> None:
    plan = planned()
    with pytest.raises(AirflowFailException, match="RETIRE"):
        operated("retire")
    with mover_of(lives):
        plan_id = submitted(plan)
        may_retire = BrokerMayRetireSensor(task_id="empty", broker="2")
        assert not looked(may_retire).done
        run_until_ended(lives, plan_id)
    assert looked(may_retire).done
    assert operated("retire") == "RETIRING"
    assert not is_in("RETIRED")
    lives.kafka.stop_broker(2)
    lives.clock.advance_ms(1)
    lives.kafka.forbidden.add("unregister_broker")
    assert not is_in("RETIRED")
    lives.kafka.forbidden.clear()
    assert is_in("RETIRED")
    assert 2 not in lives.kafka.brokers


def test_a_broker_that_holds_nothing_retires_without_a_move(lives: BrokerLives) -> None:
    for _ in range(2):  # the second time it is past its service
        empty = PlanFleetOperator(task_id="plan", kind="drain", broker="5", may_be_empty=True)
        plan_id = submitted(empty.execute(CONTEXT))
        assert plan_id is None
        assert looked(PlanEndedSensor(task_id="watch", plan_id=plan_id)).result == {}
        lives.clock.advance_ms(1)
        assert looked(BrokerMayRetireSensor(task_id="empty", broker="5")).done
    assert operated("retire", broker="5") == "RETIRING"


def test_a_broker_that_may_not_be_drained_is_told_before_anybody_is_asked(lives: BrokerLives) -> None:
    operated("repair")
    with pytest.raises(Refused, match="it is REPAIRING"):
        planned()


def test_the_time_between_two_looks_may_be_a_parameter_of_the_run(lives: BrokerLives) -> None:
    sensor = NoUnderReplicatedPartitionSensor(task_id="sync", poll_s="{{ params.poll_s }}")
    assert "poll_s" in sensor.template_fields
    sensor.poll_s = "7"  # as Airflow renders it
    lives.kafka.stop_broker(2)
    assert awaited(sensor).trigger.made().poll_s == 7.0


SENSORS: dict[str, Callable[[], FleetSensor]] = {
    "nothing_moves": lambda: NoMovesRunningSensor(task_id="s"),
    "in_sync": lambda: NoUnderReplicatedPartitionSensor(task_id="s"),
    "plan_ended": lambda: PlanEndedSensor(task_id="s", plan_id="p"),
    "may_stop": lambda: BrokerMayStopSensor(task_id="s", broker="2"),
    "may_retire": lambda: BrokerMayRetireSensor(task_id="s", broker="2"),
    "broker_state": lambda: BrokerStateSensor(task_id="s", broker="2", state="RETIRED"),
}


def test_every_look_is_that_of_a_sensor() -> None:
    assert set(SENSORS) == set(LOOKS)
    assert {made().look_name for made in SENSORS.values()} == set(LOOKS)


@pytest.mark.parametrize("name", SENSORS)
def test_every_sensor_waits_in_the_triggerer_for_days_and_survives_serialization(name: str) -> None:
    sensor = SENSORS[name]()
    assert sensor.timeout >= timedelta(days=14).total_seconds()
    path, arguments = sensor.trigger(None).serialize()
    again = FleetTrigger(**json.loads(json.dumps(arguments)))
    assert (path, again.serialize()) == (f"{FleetTrigger.__module__}.FleetTrigger", (path, arguments))
    assert again.look_name == name


def test_a_sensor_waits_in_the_triggerer_until_the_cluster_is_as_it_should_be(lives: BrokerLives) -> None:
    sensor = NoMovesRunningSensor(task_id="none", poll_s=0.01)
    lives.administration.reassign({Partition("paid", 0): [4, 5]})
    deferral = awaited(sensor)

    async def seen() -> Any:
        events = deferral.trigger.run()
        first = asyncio.create_task(anext(events))
        assert not (await asyncio.wait({first}, timeout=0.3))[0]
        lives.finish_moves()
        return (await asyncio.wait_for(first, 30)).payload

    event = asyncio.run(seen())
    assert sensor.heard(CONTEXT, event, **deferral.kwargs) is True


def test_a_cluster_that_does_not_answer_is_waited_for_and_a_wrong_argument_is_not(
    lives: BrokerLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [Unavailable("no broker answers"), NotYet("no controller"), Unauthorized("a wrong password")]

    def asked(*_: Any) -> LookResult:
        raise errors.pop(0)

    monkeypatch.setitem(LOOKS, "in_sync", asked)
    sensor = NoUnderReplicatedPartitionSensor(task_id="sync", poll_s=0.01)
    trigger = sensor.trigger(None)

    async def first() -> Any:
        return (await anext(trigger.run())).payload

    event = asyncio.run(asyncio.wait_for(first(), 30))
    assert not errors
    with pytest.raises(AirflowFailException, match="a wrong password"):
        sensor.fired(CONTEXT, event)


def awaited(sensor: FleetSensor) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferral:
        sensor.execute(CONTEXT)
    return deferral.value
