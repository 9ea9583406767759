"""The life of an older revision: its table, what is due, and when nothing can be accepted any more."""

from __future__ import annotations

import itertools
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import IllegalTransition
from rtolap.model.cube import Cube, LatePolicy, Revision, SegmentPolicy
from rtolap.model.evolution.revision_life import (
    TRANSITIONS,
    RevisionAction,
    RevisionEvent,
    RevisionState,
    Standing,
    accepts_nothing,
    due_event,
    transition,
)

WINDOW_MS = 60_000
READING, ENDED, RETIRED, DROPPED = RevisionState


def cube(policy: str, since_ms: int | None) -> Cube:
    return Cube(
        name="c",
        table="t",
        dimensions=(),
        segment=SegmentPolicy(window_ms=WINDOW_MS),
        late=LatePolicy(policy=policy),  # type: ignore[arg-type]
        revision=Revision("c", 1, since_ms=since_ms, until_ms=10 * WINDOW_MS),
    )


def test_the_table_is_this_one() -> None:
    assert {(state, event, *taken) for (state, event), taken in TRANSITIONS.items()} == {
        (READING, RevisionEvent.EXHAUST, ENDED, RevisionAction.RELEASE_PARTITIONS),
        (ENDED, RevisionEvent.RESUME, READING, RevisionAction.ASSIGN_PARTITIONS),
        (ENDED, RevisionEvent.AGE_OUT, RETIRED, RevisionAction.LEAVE_STATEMENTS),
        (RETIRED, RevisionEvent.DROP, DROPPED, RevisionAction.DROP_CUBE),
    }
    with pytest.raises(IllegalTransition, match="revision c"):
        transition(READING, RevisionEvent.DROP, subject="revision c")


def test_what_is_due_is_legal_in_every_standing() -> None:
    """And nothing is due again and again: two steps never lead back."""
    for flags in itertools.product((False, True), repeat=7):
        standing = Standing(*flags)
        event = due_event(standing)
        if event is not None:
            transition(standing.state, event, subject="c")
        ended = standing._replace(ended=True, retired=False)
        reads_on = standing._replace(ended=False, retired=False)
        assert not (due_event(ended) is RevisionEvent.RESUME and due_event(reads_on) is RevisionEvent.EXHAUST)


@pytest.mark.parametrize(
    ("policy", "since", "horizon", "built", "expected"),
    [
        ("merge", None, None, range(10), False),  # however late, it is merged
        ("merge", None, 9, range(10), False),
        ("merge", None, 10, (), True),
        ("merge", 3, 11, (), True),
        ("drop", None, None, range(10), False),  # the window before all of them has no version
        ("drop", 0, None, range(10), True),
        ("drop", 0, None, (0, 1, 2, 3, 4, 6, 7, 8, 9), False),
        ("drop", None, 4, range(4, 10), True),
        ("drop", 6, 4, range(6, 10), True),
        ("drop", 4, 4, range(5, 10), False),
        ("drop", None, 10, (), True),
    ],
)
def test_a_revision_accepts_nothing_once_all_that_may_come_is_dropped(
    policy: str, since: int | None, horizon: int | None, built: range | tuple[int, ...], expected: bool
) -> None:
    since_ms, horizon_ms = (None if at is None else at * WINDOW_MS for at in (since, horizon))
    starts = {number * WINDOW_MS for number in built}
    assert accepts_nothing(cube(policy, since_ms), 10 * WINDOW_MS, horizon_ms, starts) is expected


def test_a_horizon_within_a_window_purges_nothing_of_it() -> None:
    within_ms = 4 * WINDOW_MS + 1
    without_it = {number * WINDOW_MS for number in range(5, 10)}
    assert not accepts_nothing(cube("drop", None), 10 * WINDOW_MS, within_ms, without_it)
    assert accepts_nothing(cube("drop", None), 10 * WINDOW_MS, within_ms, {*without_it, 4 * WINDOW_MS})


@pytest.mark.parametrize("filled_by", ["topic", "batch"])
def test_one_that_is_being_filled_accepts_what_it_is_filled_with(
    filled_by: Literal["topic", "batch"],
) -> None:
    """Statements read it from its moment on, and its receivers take events from before."""
    own = cube("drop", 8 * WINDOW_MS)
    assert own.revision is not None
    revision = msgspec.structs.replace(own.revision, fills_from_ms=4 * WINDOW_MS, filled_by=filled_by)
    filling = msgspec.structs.replace(own, revision=revision)
    for first in range(4, 11):
        starts = {number * WINDOW_MS for number in range(first, 10)}
        assert accepts_nothing(filling, 10 * WINDOW_MS, None, starts) is (first == 4)
    assert accepts_nothing(filling, 10 * WINDOW_MS, 6 * WINDOW_MS, {n * WINDOW_MS for n in range(6, 10)})
