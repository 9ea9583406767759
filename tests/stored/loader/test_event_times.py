"""Up to which time everything is loaded: never later than what is left allows."""

from __future__ import annotations

from rtolap.stored.loader.job_progress import EventTimes


def test_what_is_left_holds_it_back_and_what_is_not_contiguous_does_not_count() -> None:
    times = EventTimes()
    ends = {0: 10, 1: 10}
    assert times.loaded_ms({0: 5, 1: 10}, ends, 1_000) is None
    times.settled(1, {0: 500, 1: 700})
    times.settled(3, {0: 900})
    times.contiguous(1)
    assert times.loaded_ms({0: 5, 1: 10}, ends, 1_000) == 499
    assert times.loaded_ms({0: 5, 1: 9}, ends, 1_000) == 499
    assert times.loaded_ms({0: 10, 1: 9}, ends, 1_000) == 699
    times.settled(2, {1: 800})
    times.contiguous(3)
    assert times.loaded_ms({0: 9, 1: 9}, ends, 1_000) == 799


def test_with_nothing_left_it_is_the_time_of_asking() -> None:
    times = EventTimes()
    assert times.loaded_ms({0: 10}, {0: 10}, 1_000) == 1_000
    assert times.loaded_ms({}, {0: 0}, 1_000) == 1_000


def test_without_the_logs_ends_nothing_is_known() -> None:
    assert EventTimes().loaded_ms({0: 10}, None, 1_000) is None
