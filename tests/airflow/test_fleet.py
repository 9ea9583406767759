"""Plans in Airflow: made, approved by somebody, submitted once, watched to their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from rtolap.airflow.hooks.fleet import OpenedFleet
from rtolap.airflow.operators import fleet as operators
from rtolap.airflow.operators.fleet import PlanFleetOperator, SubmitPlanOperator
from rtolap.airflow.sensors import fleet as sensors
from rtolap.airflow.sensors.fleet import (
    NoMovesRunningSensor,
    NoUnderReplicatedPartitionSensor,
    PlanEndedSensor,
)
from rtolap.base.errors import PlanChanged, PlanOutdated
from rtolap.fleet.lifecycle.states import BrokerLife
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.kafka.administration.values import Partition
from rtolap.object_store.store import open_store

from tests.support.fleet.broker_lives import CLUSTER_ID, TOKEN, BrokerLives, mover_of
from tests.support.waiting import until

APPROVED = {"chosen_options": ["Approve"], "responded_by_user": {"id": "ann", "name": "ann"}}
CONTEXT: Any = {}


class _Hook:
    def __init__(self, fleet: OpenedFleet) -> None:
        self._fleet = fleet

    @contextmanager
    def opened(self) -> Iterator[OpenedFleet]:
        yield self._fleet


@pytest.fixture
def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerLives]:
    made = BrokerLives()
    plans = open_store(f"file://{tmp_path}")
    fleet = OpenedFleet(made.administration, made.store, plans, TOKEN, made.clock)
    for module in (operators, sensors):
        monkeypatch.setattr(module, "open_fleet", lambda *_: _Hook(fleet))
    yield made
    made.close()


def planned(kind: str = "drain", broker: str | None = "2") -> dict[str, Any]:
    return PlanFleetOperator(task_id="plan", kind=kind, broker=broker).execute(CONTEXT)


def submitted(plan: dict[str, Any], answer: Any = APPROVED) -> str:
    return SubmitPlanOperator(task_id="submit", planned=plan, answer=answer).execute(CONTEXT)


def test_a_plan_is_shown_with_its_reasons_and_bytes_and_skipped_where_nothing_moves(
    lives: BrokerLives,
) -> None:
    plan = planned()
    assert plan["partitions"] == 4
    assert f"digest {plan['digest'][:12]}" in plan["text"]
    with pytest.raises(AirflowSkipException, match="nothing is to be moved"):
        planned(broker="5")


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
    assert KeptFleet(lives.store, CLUSTER_ID).requests() == ()


def test_an_approved_drain_cordons_moves_once_and_ends(lives: BrokerLives) -> None:
    plan = planned()
    with mover_of(lives):
        plan_id = submitted(plan)
        assert submitted(plan) == plan_id
        record = lives.operations().records()[2]
        assert (record.state, record.last.by) == (BrokerLife.DRAINING, "ann")
        assert lives.cordoned(2)
        assert not NoMovesRunningSensor(task_id="still").poke(CONTEXT)
        watch = PlanEndedSensor(task_id="watch", plan_id=plan_id)

        def ended() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(1000)
            return watch.poke(CONTEXT).is_done

        until(ended, "the plan has ended", poll_s=0.01)
    assert watch.poke(CONTEXT).xcom_value == {"done": 4}
    assert NoMovesRunningSensor(task_id="none").poke(CONTEXT)
    assert NoUnderReplicatedPartitionSensor(task_id="sync").poke(CONTEXT)
    submits = [each for each in KeptFleet(lives.store, CLUSTER_ID).requests() if each.plan_id == plan_id]
    assert [each.by for each in submits] == ["ann"]


def test_a_plan_that_somebody_changed_or_that_is_outdated_is_refused(lives: BrokerLives) -> None:
    plan = planned("rack", None)
    with pytest.raises(PlanChanged):
        submitted({**plan, "digest": "0" * 64})
    for partition in list(lives.kafka.partitions):
        lives.administration.reassign({partition: [4, 5]})
    lives.finish_moves()
    with pytest.raises(PlanOutdated):
        submitted(plan)


def test_a_replica_that_is_out_of_sync_is_waited_for(lives: BrokerLives) -> None:
    sensor = NoUnderReplicatedPartitionSensor(task_id="sync")
    assert sensor.poke(CONTEXT)
    lives.kafka.stop_broker(2)
    assert not sensor.poke(CONTEXT)


def test_a_plan_that_was_cancelled_fails_its_run(lives: BrokerLives) -> None:
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    with mover_of(lives):
        plan_id = submitted(planned())
        watch = PlanEndedSensor(task_id="watch", plan_id=plan_id)
        assert not watch.poke(CONTEXT).is_done
        requests = MoverRequests(KeptFleet(lives.store, CLUSTER_ID), lives.clock, TOKEN, "bob")
        requests.ask(RequestKind.CANCEL, plan_id=plan_id)

        def ended() -> bool:
            lives.kafka.settle()
            lives.clock.advance_ms(1000)
            return KeptFleet(lives.store, CLUSTER_ID).current() is None

        until(ended, "the plan has ended", poll_s=0.01)
    with pytest.raises(AirflowFailException, match="has ended with"):
        watch.poke(CONTEXT)
