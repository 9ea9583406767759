"""The lifecycle table, without any process."""

from __future__ import annotations

import pytest
from rtolap.agent.states import FINAL, TRANSITIONS, ProcessEvent, ProcessState, transition
from rtolap.base.errors import IllegalTransition
from rtolap.protocols.agent.messages import LIVE_STATES


def test_every_state_can_be_stopped_and_ends_in_a_final_state() -> None:
    for state in ProcessState:
        after = transition(state, ProcessEvent.STOP)
        assert after in FINAL or after is ProcessState.STOPPING


def test_final_states_have_no_way_out() -> None:
    for (state, event), after in TRANSITIONS.items():
        if state in FINAL:
            assert (event, after) == (ProcessEvent.STOP, state)


def test_only_pending_and_backoff_lead_to_a_start() -> None:
    pending = {state for (state, _), after in TRANSITIONS.items() if after is ProcessState.PENDING}
    assert pending == {ProcessState.BACKOFF}
    assert {state for (state, event) in TRANSITIONS if event is ProcessEvent.SPAWNED} == {
        ProcessState.PENDING
    }


def test_an_impossible_step_tells_the_story() -> None:
    with pytest.raises(IllegalTransition, match=r"r0 cannot take SPAWNED.*STOPPED.*it was stopped"):
        transition(ProcessState.STOPPED, ProcessEvent.SPAWNED, subject="r0", history=("it was stopped",))


def test_the_wire_knows_the_same_states() -> None:
    assert {state.value for state in set(ProcessState) - set(FINAL)} == LIVE_STATES
