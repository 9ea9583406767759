"""The life of a share: what follows from what, and what never may."""

from __future__ import annotations

import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.sep.shares.held import _ACTIONS
from rtolap.sep.shares.states import TRANSITIONS, ShareAction, ShareEvent, ShareState, changed


def test_every_action_is_executed() -> None:
    assert set(_ACTIONS) == set(ShareAction)
    assert {action for _, actions in TRANSITIONS.values() for action in actions} == set(ShareAction)


def test_nothing_is_served_that_was_not_recovered() -> None:
    into = {
        (state, event) for (state, event), (after, _) in TRANSITIONS.items() if after is ShareState.SERVING
    }
    assert into == {(ShareState.CLAIMED, ShareEvent.RECOVERED)}


def test_a_share_is_released_only_after_its_connections_are_closed() -> None:
    for actions in (actions for _, actions in TRANSITIONS.values() if ShareAction.RELEASE in actions):
        assert actions.index(ShareAction.CLOSE) < actions.index(ShareAction.RELEASE)


def test_whoever_serves_drains_before_anything_is_closed() -> None:
    for (state, _), (_, actions) in TRANSITIONS.items():
        if state is ShareState.SERVING:
            assert actions[0] is ShareAction.DRAIN


def test_a_lost_share_is_not_released_for_its_node_may_be_anothers() -> None:
    for (_, event), (_, actions) in TRANSITIONS.items():
        if event is ShareEvent.LOST:
            assert ShareAction.RELEASE not in actions


def test_an_impossible_event_names_the_share() -> None:
    with pytest.raises(IllegalTransition, match="share 3"):
        changed(ShareState.FREE, ShareEvent.RECOVERED, 3)
