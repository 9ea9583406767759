"""Steps are as frequent as they are short, within a bound; a quiet stream never waits."""

from __future__ import annotations

import pytest
from rtolap.cubes.receiver.runner import INTERVAL_S_MAX, SHORT_INTERVAL_S_MAX, StepPace


def test_the_first_step_and_one_after_a_pause_begin_at_once() -> None:
    pace = StepPace()
    assert pace.wait_s(100.0) == 0
    pace.stepped(100.0, 100.002)
    assert pace.wait_s(101.0) == 0


@pytest.mark.parametrize(
    ("took_s", "next_s"),
    [
        *((0.001, 0.004), (0.002, 0.008)),
        *((0.0035, SHORT_INTERVAL_S_MAX), (0.005, SHORT_INTERVAL_S_MAX)),
        *((0.008, 0.02), (0.011, INTERVAL_S_MAX), (0.02, INTERVAL_S_MAX)),
    ],
)
def test_the_next_step_waits_a_multiple_of_what_the_last_one_took(took_s: float, next_s: float) -> None:
    pace = StepPace()
    pace.stepped(50.0, 50.0 + took_s)
    assert pace.wait_s(50.0 + took_s) == pytest.approx(next_s - took_s)


def test_a_core_that_is_behind_never_waits() -> None:
    pace = StepPace()
    pace.stepped(50.0, 50.0 + INTERVAL_S_MAX)
    assert pace.wait_s(50.0 + INTERVAL_S_MAX) == 0
