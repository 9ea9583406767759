"""The table of a loader's job, and that its drawing is of it."""

from __future__ import annotations

import re

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.stored.metastore import load_jobs
from rtolap.stored.metastore.load_jobs import TRANSITIONS, LoadJobEvent, LoadJobState, transition

E, S = LoadJobEvent, LoadJobState


def test_a_job_is_stopped_failed_and_reset_in_every_state_and_started_in_every_one() -> None:
    for state in S:
        assert transition("j", state, E.STOP) is S.STOPPED is transition("j", state, E.RESET)
        assert transition("j", state, E.FAIL) is S.FAILED
        assert transition("j", state, E.START) is S.RUNNING


def test_only_a_start_leads_out_of_a_stop_or_a_failure_to_loading() -> None:
    alive = {S.RUNNING, S.PAUSED}
    revived = {
        event for (state, event), after in TRANSITIONS.items() if state not in alive and after in alive
    }
    assert revived == {E.START}


@pytest.mark.parametrize("state", [S.STOPPED, S.FAILED])
@pytest.mark.parametrize("event", [E.PAUSE, E.RESUME])
def test_a_refusal_names_the_legal_steps_and_why_the_job_is_as_it_is(state: S, event: E) -> None:
    with pytest.raises(IllegalTransition) as refused:
        transition("j", state, event, reason="the topic is gone")
    words = f"loader j cannot take {event}; expected FAIL, RESET, START, STOP in {state}"
    assert str(refused.value) == f"{words}; found history the topic is gone"


def test_the_drawing_names_the_states_and_events_of_the_table() -> None:
    drawing = (load_jobs.__doc__ or "").split("\n\n")[1]
    assert set(re.findall(r"[A-Z]{2,}", drawing)) == {name.value for name in (*S, *E)}
