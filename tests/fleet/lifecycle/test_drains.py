"""A drain is planned, submitted once under its id, and cancelled by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import PlanOutdated, PlanRefused, RtolapError
from rtolap.fleet.isolation.registry import HostRegistry
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.operations.drains import PlannedDrains
from rtolap.fleet.planning.drain import plan_drain
from rtolap.kafka.administration.values import Partition

from tests.support.fleet.broker_lives import CLUSTER_ID, TOKEN, BrokerLives, mover_of, undeclared
from tests.support.fleet.registries import registered
from tests.support.waiting import until


@pytest.fixture
def lives() -> Iterator[BrokerLives]:
    made = BrokerLives()
    yield made
    made.close()


def drains_of(lives: BrokerLives) -> PlannedDrains:
    return PlannedDrains(
        lives.administration,
        FleetStore(lives.store, CLUSTER_ID),
        lives.clock,
        TOKEN,
        registered_of=undeclared,
    )


def submits(lives: BrokerLives) -> list[str]:
    requests = FleetStore(lives.store, CLUSTER_ID).requests()
    return [request.reason for request in requests if request.kind is RequestKind.SUBMIT]


def held_by(lives: BrokerLives, broker: int) -> int:
    return sum(broker in known.replicas for known in lives.kafka.partitions.values())


def test_the_broker_ends_empty_by_one_plan_however_often_it_is_submitted(lives: BrokerLives) -> None:
    with mover_of(lives):
        for _ in range(3):
            drains_of(lives).submit(2, "d1", "ann", "disk fails")

        def empty() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(1000)
            return held_by(lives, 2) == 0

        until(empty, "the broker is empty", poll_s=0.01)
    assert submits(lives) == ["disk fails [drain d1]"]


def test_a_plan_that_was_approved_is_refused_when_the_cluster_has_changed(lives: BrokerLives) -> None:
    plan = plan_drain(lives.snapshot(), [2])
    partition = next(iter(lives.kafka.partitions))
    lives.administration.reassign({partition: [2, 5]})
    lives.finish_moves()
    drains = PlannedDrains(
        lives.administration,
        FleetStore(lives.store, CLUSTER_ID),
        lives.clock,
        TOKEN,
        registered_of=undeclared,
        approved=plan,
    )
    with pytest.raises(PlanOutdated):
        drains.submit(2, "d1", "ann", "because")
    assert submits(lives) == []


def test_a_broker_that_holds_nothing_needs_no_mover(lives: BrokerLives) -> None:
    drains_of(lives).submit(5, "d1", "ann", "because")
    assert submits(lives) == []
    drains_of(lives).cancel(5, "d1", "ann", "because")


def test_a_cancelled_drain_leaves_replicas_where_they_were(lives: BrokerLives) -> None:
    lives.kafka.partitions[Partition("paid", 1)].stuck = True
    before = {partition: list(known.replicas) for partition, known in lives.kafka.partitions.items()}
    with mover_of(lives):
        drains_of(lives).submit(2, "d1", "ann", "because")
        drains_of(lives).cancel(2, "d1", "ann", "no")

        def ended() -> bool:
            lives.kafka.settle()
            lives.clock.advance_ms(1000)
            return FleetStore(lives.store, CLUSTER_ID).current() is None

        until(ended, "the plan has ended", poll_s=0.01)
        drains_of(lives).cancel(2, "d1", "ann", "again")
    after = {partition: sorted(known.replicas) for partition, known in lives.kafka.partitions.items()}
    assert after == {partition: sorted(replicas) for partition, replicas in before.items()}


def test_a_drain_that_no_mover_answers_is_withdrawn_and_no_later_mover_runs_it(
    lives: BrokerLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtolap.fleet.moves.submitting.ANSWER_TIMEOUT_S", 0.05)
    for _ in range(2):
        with pytest.raises(RtolapError, match="no mover has answered"):
            drains_of(lives).submit(2, "d1", "ann", "because")
    assert submits(lives) == []
    kept = FleetStore(lives.store, CLUSTER_ID)
    with mover_of(lives):
        monkeypatch.undo()
        drains_of(lives).submit(2, "d2", "ann", "later")
    assert submits(lives) == ["later [drain d2]"]
    assert len(kept.plans()) == 1


def test_a_drain_keeps_to_the_registry_and_refuses_an_approved_plan_that_does_not(
    lives: BrokerLives, tmp_path: Path
) -> None:
    registered(tmp_path, "{match: [paid], brokers: [1, 2, 3, 4]}")
    registry = HostRegistry(tmp_path, "default")
    plan = plan_drain(lives.snapshot(), [2])
    assert 5 in plan.after.brokers
    kept = FleetStore(lives.store, CLUSTER_ID)
    approved = PlannedDrains(
        lives.administration,
        kept,
        lives.clock,
        TOKEN,
        registered_of=registry.cluster_of,
        approved=plan,
    )
    with pytest.raises(PlanRefused, match="comes to a broker where its topic may not stand"):
        approved.submit(2, "d0", "ann", "because")
    assert submits(lives) == []
    drains = PlannedDrains(lives.administration, kept, lives.clock, TOKEN, registered_of=registry.cluster_of)
    with mover_of(lives):
        drains.submit(2, "d1", "ann", "because")

        def empty() -> bool:
            lives.kafka.advance(1.0)
            lives.clock.advance_ms(1000)
            return held_by(lives, 2) == 0

        until(empty, "the broker is empty", poll_s=0.01)
    assert held_by(lives, 5) == 0
