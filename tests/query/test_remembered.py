"""What is known stays at hand while the place that it comes from does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from rtolap.base.errors import Corrupted, Unavailable
from rtolap.query.cluster.remembered import Remembered

from tests.support.twins.clock import ManualClock
from tests.support.waiting import until

DEADLINE_S = 30.0


class Place:
    """Where values come from; `answers` is clear while it stands still."""

    def __init__(self) -> None:
        self.value = 1
        self.looks = 0
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()

    def look(self) -> int:
        self.looks += 1
        value, error = self.value, self.error
        assert self.answers.wait(DEADLINE_S)
        if error is not None:
            raise error
        return value


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def remembered(place: Place, clock: ManualClock) -> Iterator[Remembered[int]]:
    with Remembered("places", place.look, clock, max_age_s=1.0, wait_s_max=0.05) as made:
        yield made
        place.answers.set()


def test_a_value_is_looked_up_again_when_it_is_old_or_must_be_fresh(
    place: Place, clock: ManualClock, remembered: Remembered[int]
) -> None:
    assert [remembered.get(), remembered.get()] == [1, 1]
    assert place.looks == 1
    place.value = 2
    clock.advance_ms(1500)
    assert remembered.get() == 2
    place.value = 3
    assert remembered.get() == 2
    assert remembered.get(fresh=True) == 3


def test_nobody_waits_for_a_place_that_stands_still(
    place: Place, clock: ManualClock, remembered: Remembered[int]
) -> None:
    assert remembered.get() == 1
    place.value = 2
    place.answers.clear()
    clock.advance_ms(1500)
    assert [remembered.get() for _ in range(100)] == [1] * 100
    assert place.looks == 2, "one look at a time, whoever asks"
    place.answers.set()
    assert remembered.get(fresh=True) == 2


def test_who_wants_it_fresh_waits_for_a_look_that_takes_longer_than_others_wait(
    place: Place, clock: ManualClock
) -> None:
    with Remembered(
        "places", place.look, clock, max_age_s=1.0, wait_s_max=0.05, fresh_wait_s_max=DEADLINE_S
    ) as remembered:
        assert remembered.get() == 1
        place.value = 2
        place.answers.clear()
        clock.advance_ms(1500)
        with ThreadPoolExecutor(1) as others:
            fresh = others.submit(remembered.get, fresh=True)
            while place.looks < 2:
                pass
            assert remembered.get() == 1, "this one has waited as long as it may"
            assert not fresh.done()
            place.answers.set()
            assert fresh.result(DEADLINE_S) == 2


def test_one_alone_waits_for_long_while_a_place_stands_still(place: Place, clock: ManualClock) -> None:
    with Remembered(
        "places", place.look, clock, max_age_s=1.0, wait_s_max=0.01, fresh_wait_s_max=0.3
    ) as remembered:
        assert remembered.get() == 1
        place.value = 2
        place.answers.clear()
        waits_s = []
        for _ in range(10):
            began_s = time.monotonic()
            assert remembered.get(fresh=True) == 1
            waits_s.append(time.monotonic() - began_s)
        assert waits_s[0] >= 0.3
        assert min(waits_s[1:]) < 0.3, "the others have not waited for as long"
        place.answers.set()
        until(lambda: remembered.get(fresh=True) == 2, "the newer value")


def test_what_must_be_fresh_is_of_a_look_that_began_after_it_was_asked_for(
    place: Place, clock: ManualClock
) -> None:
    with Remembered("places", place.look, clock, max_age_s=1.0, wait_s_max=DEADLINE_S) as remembered:
        assert remembered.get() == 1
        place.answers.clear()
        clock.advance_ms(1500)
        with ThreadPoolExecutor(1) as askers:
            early = askers.submit(remembered.get)
            while place.looks < 2:
                pass
            place.value = 2
            with ThreadPoolExecutor(1) as others:
                late = others.submit(remembered.get, fresh=True)
                place.answers.set()
                assert (early.result(DEADLINE_S), late.result(DEADLINE_S)) == (1, 2)


def test_a_place_that_is_away_leaves_the_value_known_last_and_other_errors_are_told(
    place: Place, clock: ManualClock, remembered: Remembered[int]
) -> None:
    place.error = Unavailable("away")
    with pytest.raises(Unavailable, match="away"):
        remembered.get()
    place.error = None
    assert remembered.get() == 1
    place.error = Unavailable("away")
    assert remembered.get(fresh=True) == 1
    place.error = Corrupted("a record cannot be read")
    with pytest.raises(Corrupted):
        remembered.get(fresh=True)
