import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.fleet.moves import states
from rtolap.fleet.moves.states import (
    FINAL,
    MOVES,
    PLANS,
    MoveEvent,
    MoveState,
    PlanEvent,
    PlanState,
    move_transition,
    plan_transition,
)


def test_every_move_and_every_plan_can_end_from_wherever_it_is() -> None:
    assert _reaching(FINAL, MOVES) == set(MoveState)
    assert _reaching({PlanState.ENDED}, PLANS) == set(PlanState)


def test_what_has_ended_stays_so() -> None:
    assert not [state for state, _ in MOVES if state in FINAL]
    assert not [state for state, _ in PLANS if state is PlanState.ENDED]


def test_a_plan_that_has_set_throttles_ends_only_by_releasing_them() -> None:
    ways = {state for (state, _), after in PLANS.items() if after is PlanState.ENDED}
    assert ways == {PlanState.QUEUED, PlanState.RELEASING}


def test_an_illegal_transition_tells_the_history() -> None:
    with pytest.raises(IllegalTransition, match="start at 5"):
        plan_transition(PlanState.ENDED, PlanEvent.PAUSE, "plan x", "start at 5")
    with pytest.raises(IllegalTransition):
        move_transition(MoveState.DONE, MoveEvent.CANCEL)


def test_the_drawing_names_every_state_and_event() -> None:
    drawn = states.__doc__ or ""
    for name in (*MoveState, *MoveEvent, *PlanState, *PlanEvent):
        assert name.name in drawn, name


def _reaching(ends: object, table: dict) -> set:  # type: ignore[type-arg]
    found = set(ends)  # type: ignore[call-overload]
    while True:
        more = {state for (state, _), after in table.items() if after in found} - found
        if not more:
            return found
        found |= more
