"""Steps of a wall clock are told apart from time that passes, and from a process that stands still."""

from __future__ import annotations

import random

import pytest
from rtolap.base.clock import ClockSteps

from tests.support.twins.clock import ManualClock


class PausedClock(ManualClock):
    """The process stands still for so long between two of its readings."""

    paused_ms = 0

    def now_ms(self) -> int:
        now_ms = super().now_ms()
        self.advance_ms(self.paused_ms)
        self.paused_ms = 0
        return now_ms


@pytest.mark.parametrize("seed", range(20))
def test_every_step_is_told_once_whatever_passes_between(seed: int) -> None:
    dice = random.Random(seed)
    clock = ManualClock(dice.randrange(1 << 41))
    steps = ClockSteps(clock)
    for _ in range(100):
        clock.advance_ms(dice.choice((0, 1, 1_000, 86_400_000)))
        step_ms = dice.choice((0, 0, 0, 500, -500, 3_600_000, -3_600_000, 31_536_000_000))
        clock.set_by_ms(step_ms)
        assert steps.look() == (clock.now_ms(), step_ms)
        assert steps.look() == (clock.now_ms(), 0)


def test_a_clock_that_is_slewed_is_followed_without_a_drift() -> None:
    clock = ManualClock(0)
    steps = ClockSteps(clock)
    told = 0
    for _ in range(10_000):
        clock.set_by_ms(1)
        told += steps.look()[1]
    assert 10_000 - 500 < told <= 10_000


@pytest.mark.parametrize("paused_ms", [51, 1_000, 3_600_000])
def test_a_process_that_stands_still_between_the_readings_of_a_look_tells_no_step(paused_ms: int) -> None:
    clock = PausedClock(1_000)
    steps = ClockSteps(clock)
    clock.paused_ms = paused_ms
    assert steps.look() == (1_000 + paused_ms, 0)
