"""The table of brokers' lives leads everywhere it should, and nowhere else."""

from __future__ import annotations

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.fleet.lifecycle.states import (
    CORDONED_IN,
    OBSERVED,
    TRANSITIONS,
    Action,
    BrokerEvent,
    BrokerLife,
    transition,
)


def test_every_state_is_reached_and_left() -> None:
    assert {after for after, _ in TRANSITIONS.values()} == set(BrokerLife)
    assert {before for before, _ in TRANSITIONS} == set(BrokerLife)
    assert {event for _, event in TRANSITIONS} == set(BrokerEvent)


def test_the_actions_on_the_way_into_a_state_give_it_the_setting_that_it_promises() -> None:
    for (before, event), (after, actions) in TRANSITIONS.items():
        wanted = CORDONED_IN[after]
        if wanted is None or CORDONED_IN[before] is wanted:
            continue
        from_failed = before is BrokerLife.FAILED and after is BrokerLife.DRAINING
        assert wanted in actions or from_failed, f"{before} {event}"


def test_data_moves_only_by_an_operation() -> None:
    moving = {event for (_, event), (_, actions) in TRANSITIONS.items() if Action.SUBMIT_DRAIN in actions}
    assert moving == {BrokerEvent.DRAIN}
    assert not moving & OBSERVED


def test_an_impossible_step_tells_the_history() -> None:
    with pytest.raises(
        IllegalTransition, match=r"broker 3 cannot take RETIRE; expected .*DRAIN.* in SERVING"
    ):
        transition(BrokerLife.SERVING, BrokerEvent.RETIRE, subject="broker 3")
