"""Operations change brokers and what is recorded of them, and nothing else does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from rtolap.base.errors import IllegalTransition, NotFound, Refused, Unavailable
from rtolap.fleet.lifecycle.actions import ClusterActions
from rtolap.fleet.lifecycle.brokers import out_of_service
from rtolap.fleet.lifecycle.states import Action, BrokerEvent, BrokerLife, BrokerRecord

from tests.support.fleet.broker_lives import LOST_AFTER_MS, BrokerLives

E, S = BrokerEvent, BrokerLife


@pytest.fixture
def lives() -> Iterator[BrokerLives]:
    made = BrokerLives()
    yield made
    made.close()


def do(lives: BrokerLives, event: BrokerEvent, broker: int = 2) -> BrokerRecord:
    return lives.operations().operate(broker, event, "ann", "because", lives.snapshot())


def look(lives: BrokerLives, broker: int = 2) -> BrokerLife:
    assert lives.operations().observe(lives.snapshot()) == {}
    return lives.operations().records()[broker].state


def test_a_broker_is_drained_repaired_and_serves_again(lives: BrokerLives) -> None:
    assert do(lives, E.CORDON).state is S.CORDONED
    assert lives.cordoned(2)
    assert do(lives, E.DRAIN).state is S.DRAINING
    assert look(lives) is S.DRAINING
    lives.finish_moves()
    assert look(lives) is S.DRAINED
    assert not any(2 in known.replicas for known in lives.kafka.partitions.values())
    assert do(lives, E.REPAIR).state is S.REPAIRING
    lives.kafka.stop_broker(2)
    assert look(lives) is S.REPAIRING
    assert do(lives, E.REPAIRED).state is S.JOINING
    assert look(lives) is S.JOINING
    lives.kafka.start_broker(2)
    assert look(lives) is S.SERVING
    assert not lives.cordoned(2)


def test_every_change_is_an_entry_with_who_when_and_why(lives: BrokerLives) -> None:
    do(lives, E.CORDON)
    do(lives, E.UNCORDON)
    entries = lives.operations().entries(2)
    assert [(each.number, each.by, each.event, each.before, each.after) for each in entries] == [
        (1, "observation", None, None, S.SERVING),
        (2, "ann", E.CORDON, S.SERVING, S.CORDONED),
        (3, "ann", E.UNCORDON, S.CORDONED, S.SERVING),
    ]
    assert entries[1].reason == "because"
    assert entries[1].at_ms < entries[2].at_ms


def test_a_machine_retires_only_when_it_holds_nothing(lives: BrokerLives) -> None:
    do(lives, E.DRAIN)
    with pytest.raises(IllegalTransition, match=r"DRAIN: SERVING to DRAINING, by ann: because"):
        do(lives, E.RETIRE)
    lives.finish_moves()
    assert look(lives) is S.DRAINED
    assert do(lives, E.RETIRE).state is S.RETIRING
    assert look(lives) is S.RETIRING
    lives.kafka.stop_broker(2)
    assert look(lives) is S.RETIRED
    assert 2 not in [broker.broker_id for broker in lives.administration.describe_cluster().brokers]
    added = lives.operations().register_broker(2, "new-host", "ann", "another machine")
    assert (added.state, added.host) == (S.PROVISIONED, "new-host")


def test_one_that_retires_with_a_replica_on_it_stays_registered(lives: BrokerLives) -> None:
    do(lives, E.DRAIN)
    lives.finish_moves()
    look(lives)
    do(lives, E.RETIRE)
    partition = next(iter(lives.kafka.partitions))
    lives.administration.reassign({partition: [2, 3]})
    lives.finish_moves()
    lives.kafka.stop_broker(2)
    assert look(lives) is S.RETIRING
    lives.administration.reassign({partition: [3, 4]})
    lives.finish_moves()
    assert look(lives) is S.RETIRED


def test_one_that_serves_again_when_it_is_to_be_forgotten_stays_registered(lives: BrokerLives) -> None:
    ClusterActions(lives.administration, lives.drains).unregister(5)
    assert 5 in lives.kafka.brokers
    lives.kafka.stop_broker(5)
    for _ in range(2):
        ClusterActions(lives.administration, lives.drains).unregister(5)
        assert 5 not in lives.kafka.brokers


def test_replicas_that_come_to_a_drained_broker_end_that_state(lives: BrokerLives) -> None:
    do(lives, E.DRAIN)
    lives.finish_moves()
    assert look(lives) is S.DRAINED
    ClusterActions(lives.administration, lives.drains).uncordon(2)
    lives.administration.reassign({next(iter(lives.kafka.partitions)): [2, 3]})
    assert look(lives) is S.CORDONED
    assert lives.cordoned(2)


def test_a_drain_that_is_cancelled_leaves_the_broker_cordoned(lives: BrokerLives) -> None:
    drain_id = do(lives, E.DRAIN).drain_id
    assert do(lives, E.CANCEL_DRAIN).state is S.CORDONED
    assert lives.drains.cancelled == [drain_id]
    assert lives.cordoned(2)


def test_a_broker_whose_stop_would_end_writing_is_not_repaired(lives: BrokerLives) -> None:
    lives.kafka.inherited["min.insync.replicas"] = "2"
    do(lives, E.CORDON)
    with pytest.raises(Refused, match=r"REPAIR is not safe now; found writing would end for paid:0"):
        do(lives, E.REPAIR)
    lives.kafka.inherited["min.insync.replicas"] = "1"
    assert do(lives, E.REPAIR).state is S.REPAIRING


def test_a_broker_that_only_restarts_is_not_called_failed(lives: BrokerLives) -> None:
    do(lives, E.CORDON)
    do(lives, E.UNCORDON)
    lives.kafka.stop_broker(2)
    assert look(lives) is S.SERVING
    lives.kafka.start_broker(2)
    assert look(lives) is S.SERVING
    lives.clock.advance_ms(LOST_AFTER_MS)
    lives.kafka.stop_broker(2)
    assert look(lives) is S.SERVING


def test_one_that_stays_away_is_failed_and_takes_nothing_new_when_it_returns(lives: BrokerLives) -> None:
    do(lives, E.CORDON)
    do(lives, E.UNCORDON)
    lives.kafka.stop_broker(2)
    assert look(lives) is S.SERVING
    lives.clock.advance_ms(LOST_AFTER_MS)
    assert look(lives) is S.FAILED
    lives.kafka.start_broker(2)
    assert look(lives) is S.CORDONED
    assert lives.cordoned(2)


def test_a_dead_broker_is_drained_from_the_other_replicas(lives: BrokerLives) -> None:
    lives.kafka.stop_broker(2)
    assert do(lives, E.DRAIN).state is S.DRAINING
    lives.finish_moves()
    assert look(lives) is S.DRAINED
    assert do(lives, E.RETIRE).state is S.RETIRING


def test_an_operation_that_the_cluster_does_not_take_stays_pending_and_is_gone_on_with(
    lives: BrokerLives,
) -> None:
    snapshot = lives.snapshot()
    lives.kafka.stop_broker(2)
    with pytest.raises(Unavailable):
        lives.operations().operate(2, E.CORDON, "ann", "because", snapshot)
    record = lives.operations().records()[2]
    assert (record.state, record.pending) == (S.CORDONED, (Action.CORDON,))
    assert record.problem is not None
    assert list(lives.operations().observe(lives.snapshot())) == [2]
    lives.kafka.start_broker(2)
    assert look(lives) is S.CORDONED
    assert lives.cordoned(2)
    assert lives.operations().records()[2].pending == ()


def test_what_was_begun_comes_before_what_is_asked_next(lives: BrokerLives) -> None:
    snapshot = lives.snapshot()
    lives.kafka.stop_broker(2)
    with pytest.raises(Unavailable):
        lives.operations().operate(2, E.CORDON, "ann", "because", snapshot)
    with pytest.raises(Unavailable):
        lives.operations().operate(2, E.UNCORDON, "bob", "no", snapshot)
    lives.kafka.start_broker(2)
    assert do(lives, E.UNCORDON).state is S.SERVING
    assert not lives.cordoned(2)


def test_an_operation_that_is_sent_again_is_done_once(lives: BrokerLives) -> None:
    operations = lives.operations()
    for _ in range(3):
        operations.operate(2, E.DRAIN, "ann", "because", lives.snapshot(), operation_id="drain-2")
    assert lives.drains.submitted == {"drain-2": 1}
    assert [entry.operation_id for entry in operations.entries(2)].count("drain-2") == 1


def test_a_process_that_stalls_in_an_action_does_not_undo_what_came_after(lives: BrokerLives) -> None:
    class Stalled(ClusterActions):
        def cordon(self, broker: int) -> None:
            do(lives, E.UNCORDON)  # another process goes on with the cordon, and takes it back
            super().cordon(broker)

    stalled = lives.operations(Stalled(lives.administration, lives.drains))
    assert stalled.operate(2, E.CORDON, "ann", "because", lives.snapshot()).state is S.SERVING
    assert not lives.cordoned(2)


def test_a_setting_that_somebody_changed_is_set_back(lives: BrokerLives) -> None:
    do(lives, E.CORDON)
    ClusterActions(lives.administration, lives.drains).uncordon(2)
    look(lives)
    assert lives.cordoned(2)
    do(lives, E.UNCORDON)
    ClusterActions(lives.administration, lives.drains).cordon(2)
    look(lives)
    assert not lives.cordoned(2)


def test_an_older_snapshot_shows_nothing(lives: BrokerLives) -> None:
    do(lives, E.DRAIN)
    lives.finish_moves()
    lives.operations().observe(dataclasses.replace(lives.snapshot(), taken_at_ms=0))
    assert lives.operations().records()[2].state is S.DRAINING


def test_unknown_brokers_other_clusters_and_observations_are_refused(lives: BrokerLives) -> None:
    with pytest.raises(NotFound, match="has no broker 77"):
        do(lives, E.CORDON, broker=77)
    other = dataclasses.replace(lives.snapshot(), cluster_id="Other")
    with pytest.raises(Refused, match="another cluster's"):
        lives.operations().operate(2, E.CORDON, "ann", "x", other)
    with pytest.raises(Refused, match="is observed"):
        do(lives, E.EMPTIED)
    do(lives, E.CORDON)
    with pytest.raises(IllegalTransition):
        lives.operations().register_broker(2, "host", "ann", "x")


def test_brokers_out_of_service_are_counted(lives: BrokerLives) -> None:
    do(lives, E.CORDON)
    do(lives, E.CORDON, broker=3)
    do(lives, E.UNCORDON, broker=3)
    assert out_of_service(lives.operations().records().values()) == [2]
