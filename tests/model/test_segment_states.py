"""The table of a segment's life, and that its drawing is of it."""

from __future__ import annotations

import itertools
import re

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.model import segment
from rtolap.model.segment import (
    TRANSITIONS,
    SegmentEvent,
    SegmentState,
    transition,
)

_E, _S = SegmentEvent, SegmentState


@pytest.mark.parametrize(("state", "event"), itertools.product(SegmentState, SegmentEvent))
def test_what_the_table_does_not_know_is_refused_with_the_story(
    state: SegmentState, event: SegmentEvent
) -> None:
    if (state, event) in TRANSITIONS:
        assert transition(state, event) == TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition, match=f"s1 cannot take {event}.*in {state}.*it was closed"):
        transition(state, event, subject="s1", history=["it was closed"])


def test_every_state_is_reached_from_active_and_purged_is_for_ever() -> None:
    reached, before = {_S.ACTIVE}, set[SegmentState]()
    while reached != before:
        before = set(reached)
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached == set(SegmentState)
    assert not [state for state, _ in TRANSITIONS if state is _S.PURGED]
    assert {state for state, event in TRANSITIONS if event is _E.PURGE} == set(SegmentState) - {_S.PURGED}


def test_the_drawing_names_the_states_and_events_of_the_table() -> None:
    drawing = (segment.__doc__ or "").split("\n\n")[1]
    words = set(re.findall(r"[A-Z]{2,}(?:_[A-Z]+)*", drawing))
    assert words == {name.value for name in (*SegmentState, *SegmentEvent)}
