"""What a loader promises: what was in the topic when the application said so, once it is readable."""

from __future__ import annotations

from rtolap.stored.loader.operator import EVERYTHING_MS, LOOKS_MAX, OldestWorkTracker


def test_everything_is_held_until_a_first_look_is_readable() -> None:
    held = OldestWorkTracker()
    assert held.readable({0: 100}) == EVERYTHING_MS
    held.observe(1_000, {0: 10, 1: 5})
    assert held.readable({0: 10}) == EVERYTHING_MS
    assert held.readable({0: 10, 1: 4}) == EVERYTHING_MS
    assert held.readable({0: 10, 1: 5}) == 1_000
    assert held.readable({0: 10, 1: 5}) == 1_000


def test_what_came_after_a_look_does_not_hold_it_back() -> None:
    held = OldestWorkTracker()
    held.observe(1_000, {0: 10})
    held.observe(2_000, {0: 20})
    assert held.readable({0: 15}) == 1_000
    assert held.readable({0: 20}) == 2_000


def test_of_equal_inputs_the_first_look_counts_and_what_is_unknown_says_nothing() -> None:
    held = OldestWorkTracker()
    held.observe(None, {0: 1})
    held.observe(1_000, None)
    held.observe(1_000, {0: 10})
    held.observe(1_000, {0: 20})
    held.observe(900, {0: 5})
    assert held.readable({0: 10}) == 1_000


def test_looks_are_bounded_while_a_backlog_is_loaded_and_stay_true() -> None:
    held = OldestWorkTracker()
    for second in range(1, 10_000):
        held.observe(second, {0: second})
        assert len(held._looks) <= LOOKS_MAX
    for visible in range(0, 10_000, 50):
        assert held.readable({0: visible}) <= visible
    assert held.readable({0: 9_999}) > 9_000
