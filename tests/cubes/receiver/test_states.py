from __future__ import annotations

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.cubes.receiver.states import TRANSITIONS, ConsumerEvent, ConsumerState, transition


def test_every_state_can_stop_and_every_state_can_be_reached() -> None:
    reached = set(TRANSITIONS.values())
    assert reached == set(ConsumerState)
    stops = {state for state, event in TRANSITIONS if event is ConsumerEvent.STOP}
    assert stops == set(ConsumerState) - {ConsumerState.STOPPED}


def test_a_resumed_consumer_replays_first() -> None:
    assert transition(ConsumerState.PAUSED, ConsumerEvent.RESUME) is ConsumerState.REPLAYING


def test_an_illegal_step_names_the_legal_ones() -> None:
    with pytest.raises(IllegalTransition, match="START"):
        transition(ConsumerState.STOPPED, ConsumerEvent.PAUSE)
